// Package measure profiles a device. A profile contains the costs of requests, their latency just
// before the device saturates, and the smallest quantum that makes a seek worthwhile.
//
// IBIS (section 4) decides the reference latency offline: latency and throughput are measured with
// increasing concurrency, and the latency observed before the storage starts to saturate is the
// reference. This package does the same for reads and writes, random and sequential, and for sizes
// from 64 KiB to 4 MiB: it raises the number of requests in flight until throughput grows by less
// than 3 %. The costs follow from that throughput, as a line fitted by least squares (fit.go). The
// measurement ends at 12 requests in flight, the greatest depth of the paper and of the daemon's
// default: the daemon never uses a greater depth.
//
// In a folder the requests are made as the daemon makes them, by staging and draining quanta of a
// file, since the daemon will see these latencies. A device is read without the page cache. This
// measures seeks over the whole disk; the device is written to only on demand.
//
// One departure from the paper: the reference is never the latency of a single request. A hard disk
// saturates with one request, and then the depth would stay at its lower bound while half of all
// latencies are a little above the reference. With two requests, the device is not idle between a
// completion and the next dispatch, and the depth can move in both directions.
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
	gainMin        = 0.03 // growth of throughput; with less the device is saturated
	keep           = 0.97 // part of the sequential rate that the quantum must reach
	referenceMin   = 2
	layShare       = 0.2 // part of the time, for writing data to read
	layMin         = 64 << 20
	spaceMin       = 64 << 20
	residualMax    = 0.35
	residualWarn   = 0.15
	foreignMax     = 0.5 // part of our own bytes
	foreignWarn    = 0.1
	sysfs          = "/sys"

	// TimeMin is the shortest measurement.
	TimeMin = 5 * time.Second
	// SpaceDefault is the space that a measurement in a folder uses, in bytes.
	SpaceDefault = 1 << 30
)

var (
	// Sizes are the sizes of the measured requests, in bytes, ascending.
	Sizes = []int64{64 << 10, 256 << 10, 1 << 20, bytesMax}
	// Ladder has the numbers of requests in flight, ascending.
	Ladder = []int{1, 2, 4, 8, concurrencyMax}
)

// ErrOptions is returned for options that are wrong for every disk.
var ErrOptions = errors.New("options")

// Options select the target and the length of a measurement.
type Options struct {
	Path     string         // a folder or a block device
	Write    bool           // overwrite a device; a folder is always written to
	Time     time.Duration  // approximate length, at least TimeMin; 0 means a minute
	Space    int64          // bytes to use in a folder, at least 64 MiB; 0 means SpaceDefault
	Seed     uint64         // of the random positions of requests
	Progress func(Progress) // may be nil
}

// Progress describes the current step, number Done of about Total steps.
type Progress struct {
	Done, Total int
	What        string
	Point       *Point // result of the last load
}

// Result is the result of a measurement.
type Result struct {
	Profile  *profile.Profile `json:"profile"`
	Points   []Point          `json:"points"`
	Kept     float64          `json:"kept"` // part of the sequential rate that the quantum reaches
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
		return nil, fmt.Errorf("%w: %v is too short to measure a disk: use %v or more", ErrOptions, o.Time, TimeMin)
	}
	if o.Space < spaceMin {
		return nil, fmt.Errorf("%w: %d MiB are too few to measure a disk: use %d MiB or more", ErrOptions, o.Space>>20, spaceMin>>20)
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
		return nil, fmt.Errorf("there is no disk under %s that could be measured: %w", o.Path, err)
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
		return nil, fmt.Errorf("the result is implausible for a disk: %w", err)
	}
	return result, nil
}

// opened returns an opened target as the interface type; on an error the target is nil.
func opened[T target](t T, name string, err error) (target, string, error) {
	if err != nil {
		return nil, "", err
	}
	return t, name, nil
}

// alone returns an error if the disk did much I/O for others during the measurement, or did much
// less than the measurement requested. It adds a warning if the disk did some I/O for others.
func (m *measurement) alone(device int64, result *Result) error {
	foreign := float64(device-m.bytes) / float64(m.bytes)
	if foreign > foreignMax {
		return fmt.Errorf("the disk moved %.0f MiB for others in addition to the %d MiB of the measurement: measure it while it is idle", float64(device-m.bytes)/mib, m.bytes>>20)
	}
	if foreign > foreignWarn {
		result.Warnings = append(result.Warnings, fmt.Sprintf("the disk moved %.0f %% more bytes than the measurement requested: measure again when it is idle", 100*foreign))
	}
	if foreign < -foreignMax {
		return fmt.Errorf("%d MiB were requested and only %d reached the disk: a layer below the file system keeps data in memory", m.bytes>>20, device>>20)
	}
	return nil
}

// measurement is a measurement in progress.
type measurement struct {
	target   target
	options  Options
	random   *rand.Rand
	deadline time.Time
	progress Progress
	bytes    int64 // requested from the device
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
	// The deadline limits the delay for the caller if the disk is much slower than planned for.
	ctx, cancel := context.WithDeadlineCause(ctx, m.deadline.Add(m.options.Time),
		fmt.Errorf("the disk is too slow to be measured in %v: allow more with --time", m.options.Time))
	defer cancel()
	directions := []bool{false}
	if m.target.writable() {
		directions = append(directions, true)
	}
	m.progress.Total = 1 + 2*len(directions)*len(Sizes)
	m.say("writing data to read", nil)
	laid, err := m.target.lay(func(laid int64) bool {
		return ctx.Err() == nil && (laid < layMin || time.Since(began) < time.Duration(layShare*float64(m.options.Time)))
	})
	if err != nil {
		return nil, fmt.Errorf("write data to read: %w", err)
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

// curve raises the concurrency of a load until throughput stops growing, and returns the
// concurrency at that point. enough is a concurrency that saturates the device with smaller
// requests; curve does not exceed it. When its time is up, curve goes to enough at once, because a
// few large requests take long on a slow device.
func (m *measurement) curve(ctx context.Context, l Load, enough int) (saturated int, err error) {
	const steps = 5 // approximate maximum number of steps of a curve
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
