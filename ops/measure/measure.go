// Package measure profiles a device: what its requests cost, their latency just
// before it saturates, and the smallest quantum that pays for its seek.
//
// IBIS (section 4) decides the reference latency offline: load with increasing
// concurrency, latency and throughput measured, and the latency observed before
// the storage starts to saturate is the reference. So does this, for reads and
// writes, at new places and going on, and for sizes from 64 KiB to 4 MiB: more
// requests at a time until throughput grows by less than 3 %. The throughput
// there gives the costs, a line fitted by least squares (fit.go). It ends at 12
// at a time, the greatest depth of the paper and of the daemon's default: what a
// device could do beyond that it will not be asked for.
//
// In a folder the requests go the daemon's own way, staged and drained quanta of
// a file, since those are the latencies that the daemon will see. A device is
// read past the page cache; it shows seeks over the whole disk, and is written
// to only on demand.
//
// One departure: the reference is never that of one request alone. A hard disk
// saturates at one, and then the depth would stand at its lower bound with every
// second latency a little above the reference; with two the device does not
// stand still between a completion and the next dispatch, and the depth has room
// on both sides.
package measure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"penstock/node/monitor"
	"penstock/node/profile"
)

const (
	bytesMax       = 4 << 20
	concurrencyMax = 12
	gainMin        = 0.03 // of throughput; below it the device is saturated
	keep           = 0.97 // of the sequential rate, by the quantum
	referenceMin   = 2
	layShare       = 0.2 // of the time, for making something to read
	layMin         = 64 << 20
	spaceMin       = 64 << 20
	residualMax    = 0.35
	residualWarn   = 0.15
	foreignMax     = 0.5 // of our own bytes
	foreignWarn    = 0.1
	sysfs          = "/sys"

	// TimeMin is the shortest measurement.
	TimeMin = 5 * time.Second
	// SpaceDefault is what a measurement in a folder takes up.
	SpaceDefault = 1 << 30
)

var (
	// Sizes are the requests measured, in bytes, ascending.
	Sizes = []int64{64 << 10, 256 << 10, 1 << 20, bytesMax}
	// Ladder is how many requests are outstanding at a time, ascending.
	Ladder = []int{1, 2, 4, 8, concurrencyMax}
)

// ErrOptions says that what was asked for cannot be done on any disk.
var ErrOptions = errors.New("options")

// Options say what to measure and how long.
type Options struct {
	Path     string         // a folder or a block device
	Write    bool           // a device: overwrite it; a folder is always written to
	Time     time.Duration  // how long, about, at least TimeMin; 0 means a minute
	Space    int64          // bytes to take up in a folder, at least 64 MiB; 0 means SpaceDefault
	Seed     uint64         // of the places
	Progress func(Progress) // may be nil
}

// Progress is what is being done, the Done-th of about Total steps.
type Progress struct {
	Done, Total int
	What        string
	Point       *Point // the last load's
}

// Result is what was measured.
type Result struct {
	Profile  *profile.Profile `json:"profile"`
	Points   []Point          `json:"points"`
	Kept     float64          `json:"kept"` // part of the sequential rate that the quantum keeps
	Warnings []string         `json:"warnings"`
}

// Run measures the device. It ends soon after ctx does, and leaves nothing
// behind.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	if o.Time == 0 {
		o.Time = time.Minute
	}
	if o.Space == 0 {
		o.Space = SpaceDefault
	}
	o.Space = o.Space / bytesMax * bytesMax
	if o.Time < TimeMin {
		return nil, fmt.Errorf("%w: %v is too short to measure a disk: give %v or more", ErrOptions, o.Time, TimeMin)
	}
	if o.Space < spaceMin {
		return nil, fmt.Errorf("%w: %d MiB are too few to measure a disk in: give %d MiB or more", ErrOptions, o.Space>>20, spaceMin>>20)
	}
	info, err := os.Stat(o.Path)
	if err != nil {
		return nil, err
	}
	var t target
	var name string
	switch mode := info.Mode(); {
	case mode.IsDir():
		t, name, err = opened(openFiles(o.Path, o.Space))
	case mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0:
		t, name, err = opened(openRaw(o.Path, o.Write))
	default:
		err = fmt.Errorf("%s is neither a folder nor a block device", o.Path)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	device, err := profile.Identify(sysfs, name)
	if err != nil {
		return nil, fmt.Errorf("%s has no disk under it that could be measured: %w", o.Path, err)
	}
	before, counted := monitor.Read(sysfs, name)
	m := newMeasurement(t, o)
	result, err := m.run(ctx)
	if err != nil {
		return nil, err
	}
	result.Profile.Device = device
	result.Profile.Measured = time.Now().UTC().Round(time.Second)
	if after, err := monitor.Read(sysfs, name); err == nil && counted == nil {
		if err := m.alone(after.ReadBytes+after.WrittenBytes-before.ReadBytes-before.WrittenBytes, result); err != nil {
			return nil, err
		}
	}
	if err := result.Profile.Validate(); err != nil {
		return nil, fmt.Errorf("what was measured is no disk's: %w", err)
	}
	return result, nil
}

// opened makes a target of what is one.
func opened[T target](t T, name string, err error) (target, string, error) {
	if err != nil {
		return nil, "", err
	}
	return t, name, nil
}

// alone refuses a measurement in which the disk did much for others.
func (m *measurement) alone(device int64, result *Result) error {
	foreign := float64(device-m.bytes) / float64(m.bytes)
	if foreign > foreignMax {
		return fmt.Errorf("the disk did %.0f MiB for others beside %d MiB of the measurement: measure it while it is idle", float64(device-m.bytes)/mib, m.bytes>>20)
	}
	if foreign > foreignWarn {
		result.Warnings = append(result.Warnings, fmt.Sprintf("the disk did %.0f %% more than the measurement asked for: measure again when it is idle", 100*foreign))
	}
	if foreign < -foreignMax {
		return fmt.Errorf("of %d MiB asked for only %d came to the disk: something below the file system keeps them in memory", m.bytes>>20, device>>20)
	}
	return nil
}

// measurement is one under way.
type measurement struct {
	target   target
	options  Options
	random   *rand.Rand
	deadline time.Time
	progress Progress
	bytes    int64 // that the device was asked for
	points   []Point
}

func newMeasurement(t target, o Options) *measurement {
	return &measurement{target: t, options: o, random: rand.New(rand.NewPCG(o.Seed, 1))}
}

func (m *measurement) say(what string, p *Point) {
	m.progress.What, m.progress.Point = what, p
	if m.options.Progress != nil {
		m.options.Progress(m.progress)
	}
}

// run measures all curves and makes a profile of them.
func (m *measurement) run(ctx context.Context) (*Result, error) {
	began := time.Now()
	m.deadline = began.Add(m.options.Time)
	// A disk that is slower than any planning cannot hold the caller up for long.
	ctx, cancel := context.WithDeadlineCause(ctx, m.deadline.Add(m.options.Time),
		fmt.Errorf("the disk is too slow to be measured in %v: give more with --time", m.options.Time))
	defer cancel()
	directions := []bool{false}
	if m.target.writable() {
		directions = append(directions, true)
	}
	m.progress.Total = 1 + 2*len(directions)*len(Sizes)
	m.say("writing something to read", nil)
	laid, err := m.target.lay(func(laid int64) bool {
		return ctx.Err() == nil && (laid < layMin || time.Since(began) < time.Duration(layShare*float64(m.options.Time)))
	})
	if err != nil {
		return nil, fmt.Errorf("write something to read: %w", err)
	}
	m.bytes += laid
	for _, sequential := range []bool{true, false} {
		for _, write := range directions {
			enough := concurrencyMax
			for _, size := range Sizes {
				m.progress.Done++
				saturated, err := m.curve(ctx, Load{Write: write, Sequential: sequential, Bytes: size}, enough)
				if err != nil {
					if cause := context.Cause(ctx); cause != nil {
						err = cause
					}
					return nil, err
				}
				enough = max(saturated, 2)
			}
		}
	}
	m.progress.Done++
	m.say("done", nil)
	return conclude(m.points, m.target.writable())
}

// curve raises the concurrency of a load until throughput stops growing, and
// gives where that was. It goes no further than enough, which saturates the
// device with smaller requests, and goes there at once when its time is up: on a
// slow device a few large requests take long.
func (m *measurement) curve(ctx context.Context, l Load, enough int) (saturated int, err error) {
	const steps = 5 // that a curve has at most, about
	share := time.Until(m.deadline) / time.Duration(m.progress.Total-m.progress.Done+1)
	length := max(share/steps, 100*time.Millisecond)
	end := time.Now().Add(share)
	best := -1
	for _, n := range Ladder {
		if n > enough {
			break
		}
		if best >= 0 && time.Now().After(end) {
			n = enough
		}
		l.Concurrency = n
		m.say(l.String(), nil)
		r := &runner{target: m.target, load: l, random: m.random}
		p, err := r.run(ctx, length)
		m.bytes += r.bytes
		if err != nil {
			return 0, err
		}
		m.points = append(m.points, p)
		m.say(l.String(), &p)
		if best >= 0 && p.BytesPerSecond < (1+gainMin)*m.points[best].BytesPerSecond {
			break
		}
		best = len(m.points) - 1
		if n == enough {
			break
		}
	}
	m.points[best].Saturated = true
	return m.points[best].Concurrency, nil
}
