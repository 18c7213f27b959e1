package cost

import "time"

// Tracker corrects a model while the device runs and notices when the device
// has become much slower than it was.
//
// While the device is busy, the time that passes is the cost of what it does. So
// the tracker cuts the busy time into slices that end with a completion, and
// holds each one's busy time against the predicted cost of what completed in
// it. The quotient, smoothed and bounded, is the scale of the model. Reads and
// writes have a scale each as far as the load tells them apart (stretch.go).
//
// A device that works on several requests at a time is only partly busy with few
// in flight: each counts with the part of the device that it keeps busy alone
// (Model.Part), up to all of it.
//
// A slice that took 4 times its prediction is slow. Two slow ones in a row, of 4
// busy seconds together, make the verdict Slow: ten times slower is noticed
// within 10 s also where one request then takes 3 s, and a stall by itself, of
// whatever cause, is within one slice and makes no verdict before it lasts 8 s.
// Healthy slices (2 times at most), two in a row of 2 s together, end it. Slow
// slices do not move the scale of the model, and it stays within a factor of 2
// of where it began: a device that fades slowly is noticed as well.
//
// I/O of others on the device (Others) counts as done, so that load is not taken
// for slowness, but its cost is a guess, so slices with much of it correct
// nothing.
//
// Times are durations since any fixed moment, from a clock that does not go
// back. No method allocates. A Tracker belongs to one caller at a time.
type Tracker struct {
	learning    learning
	sharedScale bool // both directions have one scale

	scale         [2]float64    // read, write: of the healthy device
	common        float64       // what both have in common
	tilt          float64       // reads are common*tilt, writes common/tilt
	origin        float64       // common stays within a factor of 2 of it
	tiltEstimator tiltEstimator // what moves tilt

	now      time.Duration
	inFlight int
	pending  float64 // predicted cost of what is in flight, ns, unscaled
	parts    float64 // of the device that what is in flight would keep busy

	busy   float64    // of the open slice, ns
	work   [2]float64 // predicted cost of what completed in it, ns, unscaled
	others float64

	heard     time.Duration // of others, last; since then:
	busySince float64       // ns
	ownSince  float64       // predicted cost of what completed, ns, unscaled
	shared    bool          // others had a part of the device then

	slow, healthy run
	verdict       Verdict
}

// Verdict is what a Tracker thinks of the device.
type Verdict struct {
	Slow   bool
	Factor float64 // times slower than it was when healthy; 1 unless Slow
}

// TrackerConfig sets up a Tracker.
type TrackerConfig struct {
	// Learn says that the model was not measured on this device, so that only
	// its ratios mean something: the first seconds of load give its scale, the
	// device cannot be called slow before, and reads and writes stay in the
	// ratio that the model gives them.
	Learn bool
}

const (
	sliceBusy   = float64(500 * time.Millisecond) // a slice ends with the first completion after it
	slowAt      = 4.0                             // times the prediction
	healthyAt   = 2.0
	slowBusy    = float64(4 * time.Second)
	healthyBusy = float64(2 * time.Second)
	hangBusy    = float64(8 * time.Second) // without an end of the slice
	runSlices   = 2

	gain       = 0.05 // of a slice's error that the common scale takes over
	errorMax   = 0.7  // an odd slice moves the scale by at most gain times this
	driftMax   = 2.0  // of the common scale from its origin, either way
	othersMax  = 0.1  // part of a slice's work, beyond which it corrects nothing
	factorMax  = 1000.0
	factorGain = 0.3

	learnBusy   = float64(5 * time.Second)
	learnSlices = 4
	learnMax    = 100.0 // the learnt scale's bound, either way
)

// run is slices of one kind in a row.
type run struct {
	slices         int
	busy, expected float64
}

func (r *run) add(busy, expected float64) {
	r.slices++
	r.busy += busy
	r.expected += expected
}

// learning is what the first slices of an unprofiled device said. The worst of
// them is left out: it may hold a stall.
type learning struct {
	on         bool
	all, worst run
}

// NewTracker returns a tracker of an idle device.
func NewTracker(cfg TrackerConfig) *Tracker {
	t := &Tracker{sharedScale: cfg.Learn, common: 1, tilt: 1, origin: 1, tiltEstimator: newTiltEstimator(), verdict: Verdict{Factor: 1}}
	t.learning.on = cfg.Learn
	t.rescale()
	return t
}

// Start notes that the device was given a request of that predicted cost, which
// alone keeps that part of the device busy.
func (t *Tracker) Start(now, predicted time.Duration, part float64) {
	t.advance(now)
	t.inFlight++
	t.pending += float64(max(predicted, 0))
	t.parts += bounded(part)
}

func bounded(part float64) float64 { return min(max(part, 1e-3), 1) }

// End notes that a request is done. Predicted and part are what Start was told;
// actual is the model's cost now that it is known what the request was, and 0 if
// the device had nothing to do for it.
func (t *Tracker) End(now time.Duration, write bool, predicted time.Duration, part float64, actual time.Duration) {
	t.advance(now)
	t.inFlight = max(t.inFlight-1, 0)
	t.pending = max(t.pending-float64(max(predicted, 0)), 0)
	t.parts = max(t.parts-bounded(part), 0)
	if t.inFlight == 0 {
		t.pending, t.parts = 0, 0
	}
	if actual <= 0 {
		return
	}
	t.work[index(write)] += float64(actual)
	t.ownSince += float64(actual)
	if t.busy >= sliceBusy {
		t.close()
	}
}

// Others notes what the device did for others than the caller since the last
// call, as predicted cost; rather too much than too little. What is not
// positive counts as 0. Of what they did the part counts that was beside the
// caller's requests: what the device does for others while it does nothing for the
// caller makes no request late. Until the next call slices correct the model only if
// it is next to nothing: slices may be shorter than the time between calls.
func (t *Tracker) Others(cost time.Duration) {
	beside := float64(max(cost, 0))
	if passed := float64(t.now - t.heard); passed > 0 {
		beside *= min(1, t.busySince/passed)
	}
	t.others += beside
	t.shared = beside > othersMax*t.ownSince
	t.heard, t.busySince, t.ownSince = t.now, 0, 0
}

// Healthy returns how many times the model's cost the healthy device takes, both
// directions together, and whether that is known yet: without a profile it is not
// before the device has been busy for some seconds.
func (t *Tracker) Healthy() (scale float64, known bool) { return t.common, !t.learning.on }

// Look returns the verdict, to be asked every second or more often.
func (t *Tracker) Look(now time.Duration) Verdict {
	t.advance(now)
	if !t.learning.on && !t.verdict.Slow && t.busy >= hangBusy {
		// Nothing has ended for long. Whatever is in flight may be nearly done.
		if most := t.expected() + float64(t.common*t.pending); t.busy >= slowAt*most {
			t.verdict = Verdict{Slow: true, Factor: factor(t.busy, most)}
			t.rescale()
		}
	}
	return t.verdict
}

// Scale returns what a direction's predicted costs are to be multiplied with to
// be this device's time now, slowness included.
func (t *Tracker) Scale(write bool) float64 { return t.scale[index(write)] }

// Tilt returns the part of Scale by which the directions differ: what both have
// in common makes no difference to shares.
func (t *Tracker) Tilt(write bool) float64 {
	if write {
		return 1 / t.tilt
	}
	return t.tilt
}

// Scaled returns a predicted cost multiplied with a factor such as Scale or
// Tilt, 0 to Max.
func Scaled(predicted time.Duration, factor float64) time.Duration {
	return time.Duration(min(max(float64(float64(predicted)*factor), 0), float64(Max)))
}

func index(write bool) int {
	if write {
		return 1
	}
	return 0
}

func (t *Tracker) advance(now time.Duration) {
	passed := now - t.now
	if passed <= 0 {
		return
	}
	t.now = now
	if t.inFlight > 0 {
		busy := float64(float64(passed) * min(1, t.parts))
		t.busy += busy
		t.busySince += busy
	}
}

// expected is how long the slice's work should have taken, were the device
// healthy. The conversions keep products from being fused with sums on machines
// that would, so that all decide alike.
func (t *Tracker) expected() float64 {
	return float64(t.common*t.tilt*t.work[0]) + float64(t.common/t.tilt*t.work[1]) + float64(t.common*t.others)
}

// close ends the slice and judges it.
func (t *Tracker) close() {
	busy, expected := t.busy, t.expected()
	work := t.work
	own := work[0] + work[1]
	clean := !t.shared && t.others <= othersMax*own
	raw := own + t.others
	t.busy, t.work, t.others = 0, [2]float64{}, 0

	if t.learning.on {
		t.learn(busy, raw)
		return
	}
	switch ratio := busy / expected; {
	case ratio >= slowAt:
		t.slow.add(busy, expected)
		t.healthy = run{}
	case ratio <= healthyAt:
		t.healthy.add(busy, expected)
		t.slow = run{}
	default:
		t.slow, t.healthy = run{}, run{}
	}
	switch v := &t.verdict; {
	case !v.Slow && t.slow.slices >= runSlices && t.slow.busy >= slowBusy:
		*v = Verdict{Slow: true, Factor: factor(t.slow.busy, t.slow.expected)}
	case v.Slow && t.healthy.slices >= runSlices && t.healthy.busy >= healthyBusy:
		*v = Verdict{Factor: 1}
	case v.Slow:
		v.Factor += float64(factorGain * (factor(busy, expected) - v.Factor))
	case clean && t.slow.slices == 0:
		t.correct(busy, expected, work)
		t.rescale()
		return
	}
	t.tiltEstimator.restart()
	t.rescale()
}

func factor(busy, expected float64) float64 {
	if expected <= 0 {
		return factorMax
	}
	return min(max(busy/expected, 1), factorMax)
}

// correct moves the scales by a part of a healthy slice's error.
func (t *Tracker) correct(busy, expected float64, work [2]float64) {
	t.common = min(max(t.common*(1+float64(gain*relativeError(busy, expected))), t.origin/driftMax), t.origin*driftMax)
	if !t.sharedScale {
		t.tilt = t.tiltEstimator.tilt(t.tilt, busy, expected, work, t.pending)
	}
}

// off is a slice's error, bounded.
func relativeError(busy, expected float64) float64 {
	return min(max(2*(busy-expected)/(busy+expected), -errorMax), errorMax)
}

// learn takes the scale from the first slices.
func (t *Tracker) learn(busy, raw float64) {
	l := &t.learning
	l.all.add(busy, raw)
	if l.worst.slices == 0 || busy*l.worst.expected > l.worst.busy*raw {
		l.worst = run{1, busy, raw}
	}
	if l.all.slices > 1 {
		scale := (l.all.busy - l.worst.busy) / (l.all.expected - l.worst.expected)
		t.common = min(max(scale, 1/learnMax), learnMax)
		t.origin = t.common
	}
	if l.all.slices >= learnSlices && l.all.busy-l.worst.busy >= learnBusy {
		l.on = false
	}
	t.rescale()
}

func (t *Tracker) rescale() {
	t.scale[0] = t.common * t.tilt * t.verdict.Factor
	t.scale[1] = t.common / t.tilt * t.verdict.Factor
}
