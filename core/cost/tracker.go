package cost

import "time"

// Tracker corrects a model while the device runs, and detects when the device has become much slower.
//
// While the device is busy, the time that passes is the cost of its work. The tracker cuts the busy
// time into slices that end with a completion, and compares the busy time of each slice with the
// predicted cost of the requests completed in it. The quotient, smoothed and bounded, is the scale
// of the model. Reads and writes have separate scales as far as the load distinguishes them
// (tilt.go).
//
// A device that works on several requests at a time is only partly busy with a few in flight.
// Model.Part is the part of the device that a request keeps busy while it is alone. The parts of
// the requests in flight add up, to at most the whole device.
//
// A slice that takes 4 times its prediction is slow. The verdict is Slow after two slow slices in a
// row with together 4 busy seconds. So a device that becomes ten times slower is detected within 10
// s, even if a request then takes 3 s. A single stall, whatever its cause, falls into one slice and
// does not make the verdict Slow until it lasts 8 s. The verdict ends after two healthy slices in a
// row with together 2 busy seconds. A slice is healthy if it takes at most 2 times its prediction.
// Slow slices do not change the model's scale. The scale stays within a factor of 2 of its origin,
// so that a gradual slowdown is detected too.
//
// Foreign I/O on the device (Others) counts as work, so that load is not mistaken for slowness. But
// its cost is an estimate, so slices with much foreign I/O do not correct the model. A sudden
// change of the device's speed is found sooner (step.go).
//
// Times are durations since any fixed moment, from a clock that does not go back. No method
// allocates. A Tracker is not safe for concurrent use.
type Tracker struct {
	learning    learning
	sharedScale bool // reads and writes have one scale

	scale         [2]float64    // of reads and of writes
	common        float64       // the common factor of both scales
	tilt          float64       // the scale of reads is common*tilt, of writes common/tilt
	stepped       float64       // the factor of recent steps in common
	origin        float64       // common stays within a factor of 2 of origin
	tiltEstimator tiltEstimator // estimates tilt
	steps         stepFinder

	now      time.Duration
	inFlight int
	pending  float64 // predicted cost in flight, in ns, unscaled
	parts    float64 // sum of Model.Part over the requests in flight

	busy   float64    // of the open slice, in ns
	work   [2]float64 // predicted cost completed in the slice, in ns, unscaled
	others float64

	heard     time.Duration // time of the last call of Others; the next two fields count from then
	busySince float64       // ns
	ownSince  float64       // predicted cost completed, in ns, unscaled
	shared    bool          // foreign I/O took a relevant part of the device

	slow, healthy run
	verdict       Verdict
}

// Verdict is a Tracker's judgement of the device.
type Verdict struct {
	Slow   bool
	Factor float64 // how many times slower the device is than when healthy; 1 unless Slow
}

// TrackerConfig configures a Tracker.
type TrackerConfig struct {
	// Learn is set if the model was not measured on this device, so that only its ratios are
	// meaningful. The first seconds of load determine the scale. The device cannot be judged slow
	// before that, and reads and writes keep the ratio of the model.
	Learn bool
}

const (
	sliceBusy   = float64(500 * time.Millisecond) // a slice ends with the first completion after this busy time
	slowAt      = 4.0                             // multiple of the prediction
	healthyAt   = 2.0
	slowBusy    = float64(4 * time.Second)
	healthyBusy = float64(2 * time.Second)
	hangBusy    = float64(8 * time.Second) // in one slice
	runSlices   = 2

	steadyGain = 0.1 // part of a step that Steady follows at each call of Others, about once a second: as slices would

	gain       = 0.05 // part of a slice's error that changes the common scale
	errorMax   = 0.7  // bounds the error of one slice
	driftMax   = 2.0  // largest factor between the common scale and its origin, in either direction
	othersMax  = 0.1  // foreign part of a slice's work beyond which the slice corrects nothing
	factorMax  = 1000.0
	factorGain = 0.3

	learnBusy   = float64(5 * time.Second)
	learnSlices = 4
	learnMax    = 100.0 // bounds the learnt scale, in either direction
)

// run is a sequence of slices of one kind.
type run struct {
	slices         int
	busy, expected float64
}

func (r *run) add(busy, expected float64) {
	r.slices++
	r.busy += busy
	r.expected += expected
}

// learning holds the first slices of a device without a profile. The slowest of them is left out,
// because it may contain a stall.
type learning struct {
	on         bool
	all, worst run
}

// NewTracker returns the tracker of an idle device.
func NewTracker(cfg TrackerConfig) *Tracker {
	t := &Tracker{sharedScale: cfg.Learn, common: 1, stepped: 1, tilt: 1, origin: 1, tiltEstimator: newTiltEstimator(), verdict: Verdict{Factor: 1}}
	t.learning.on = cfg.Learn
	t.rescale()
	return t
}

// Start records that a request of the predicted cost was given to the device. part is the part of
// the device that the request keeps busy alone.
func (t *Tracker) Start(now, predicted time.Duration, part float64) {
	t.advance(now)
	t.inFlight++
	t.pending += float64(max(predicted, 0))
	t.parts += bounded(part)
}

func bounded(part float64) float64 { return min(max(part, 1e-3), 1) }

// End records the end of a request. predicted and part must be those given to Start. actual is the
// model's cost of the work that the request really caused, or 0 if the device had no work.
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
	t.steps.work[index(write)] += float64(actual)
	t.ownSince += float64(actual)
	if t.busy >= sliceBusy {
		t.close()
	}
}

// Others records the predicted cost of the device's foreign work since the last call. The estimate
// should rather be too high than too low. Negative values count as 0. Only the part of that work
// counts that was done while requests of the caller were in flight, because other work delays no
// request. Until the next call, slices correct the model only if that part is negligible, because
// slices may be shorter than the time between calls.
func (t *Tracker) Others(cost time.Duration) {
	beside := float64(max(cost, 0))
	if passed := float64(t.now - t.heard); passed > 0 {
		beside *= min(1, t.busySince/passed)
	}
	t.others += beside
	t.shared = beside > othersMax*t.ownSince
	t.steps.busy += t.busySince
	t.steps.others += beside
	t.step()
	t.heard, t.busySince, t.ownSince = t.now, 0, 0
}

// step corrects the scale if the device's speed has changed suddenly.
func (t *Tracker) step() {
	s := &t.steps
	t.stepped = 1 + float64((1-steadyGain)*(t.stepped-1))
	if t.learning.on || t.verdict.Slow || t.slow.slices > 0 {
		s.forget(t.pending)
		return
	}
	own := float64(t.common*t.tilt*s.work[0]) + float64(t.common/t.tilt*s.work[1])
	if factor := s.judge(t.common, own, float64(t.common*s.others), t.pending); factor != 1 {
		before := t.common
		t.move(factor)
		t.stepped *= t.common / before
		t.tiltEstimator.restart()
		t.rescale()
	}
}

// move changes the common scale within its bounds.
func (t *Tracker) move(factor float64) {
	t.common = min(max(float64(t.common*factor), t.origin/driftMax), t.origin*driftMax)
}

// Healthy returns the common scale of the healthy device: the device time of a request divided by
// the model's cost. known is false while the scale is being learnt.
func (t *Tracker) Healthy() (scale float64, known bool) { return t.common, !t.learning.on }

// Steady returns the common scale without recent steps, for estimates of foreign I/O. Foreign work that
// is found late can look like a slower device for a few seconds. With the scale of that device, no time
// would remain for the foreign work, and it would never be found. known is as in Healthy.
func (t *Tracker) Steady() (scale float64, known bool) { return t.common / t.stepped, !t.learning.on }

// Look returns the verdict. It must be called at least every second.
func (t *Tracker) Look(now time.Duration) Verdict {
	t.advance(now)
	if !t.learning.on && !t.verdict.Slow && t.busy >= hangBusy {
		// No request has ended for a long time; those in flight may be nearly done.
		if most := t.expected() + float64(t.common*t.pending); t.busy >= slowAt*most {
			t.verdict = Verdict{Slow: true, Factor: factor(t.busy, most)}
			t.rescale()
		}
	}
	return t.verdict
}

// Scale returns the present device time of a direction's requests divided by their predicted cost,
// including a slowdown.
func (t *Tracker) Scale(write bool) float64 { return t.scale[index(write)] }

// Tilt returns the factor of Scale in which the directions differ. The other factor is common to
// both directions and does not affect shares.
func (t *Tracker) Tilt(write bool) float64 {
	if write {
		return 1 / t.tilt
	}
	return t.tilt
}

// Scaled returns a predicted cost multiplied by a factor such as Scale or Tilt, 0 to Max.
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

// expected returns how long the slice's work should take on a healthy device. The conversions
// prevent fused multiply-add, so that all machines compute the same result.
func (t *Tracker) expected() float64 {
	return float64(t.common*t.tilt*t.work[0]) + float64(t.common/t.tilt*t.work[1]) + float64(t.common*t.others)
}

// close ends the slice and evaluates it.
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
	t.move(1 + float64(gain*relativeError(busy, expected)))
	if !t.sharedScale {
		t.tilt = t.tiltEstimator.tilt(t.tilt, busy, expected, work, t.pending)
	}
}

// relativeError returns the bounded relative error of a slice.
func relativeError(busy, expected float64) float64 {
	return min(max(2*(busy-expected)/(busy+expected), -errorMax), errorMax)
}

// learn determines the scale from the first slices.
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
