package guarantees

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"penstock/core/reserve"
	"penstock/lab/contenders"
	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/judge"
	"penstock/node/status"
)

// Numbers of the applications. Those of a row's aggressors follow.
const (
	one       = 200 // has a guaranteed rate of one disk
	whole     = 300 // has a total rate
	limited   = 400 // has a limit on one disk
	allowed   = 410 // has a total limit
	first     = 500 // its rule comes before that of second
	second    = 501
	plain     = 502
	elsewhere = 510 // has a guaranteed rate on another disk
)

// Turn is the result of one row in one run. Exactly one of its parts is not nil.
type Turn struct {
	Row     string   `json:"row"`
	Run     int      `json:"run"`
	One     *One     `json:"one,omitempty"`
	Cluster *Cluster `json:"cluster,omitempty"`
	Limit   *Limit   `json:"limit,omitempty"`
	Halved  *Halved  `json:"halved,omitempty"`
}

// Parts are the parts of a rate that an application had in windows of one length.
type Parts struct {
	LengthS float64   `json:"length_s"`
	Parts   []float64 `json:"parts"`
	// ShortQuanta is what the worst window lacked, in quanta of the device; below 0: it lacked nothing.
	ShortQuanta float64 `json:"short_quanta"`
}

// One is the result of a row on one disk.
type One struct {
	// Moved is the time that the moved bytes take in one piece, as a part of the time that passed.
	Moved   float64 `json:"moved"`
	Busy    float64 `json:"busy"`              // part of the time in which the disk worked
	Windows []Parts `json:"windows,omitempty"` // none in a native row
	Depth   int     `json:"depth,omitempty"`   // the largest that was seen
	Had     float64 `json:"had"`               // part of the rate over the whole time
	KeptS   float64 `json:"kept_s,omitempty"`  // by Penstock's own account
	BrokenS float64 `json:"broken_s,omitempty"`
}

// Cluster is the result of a total rate with moving tasks.
type Cluster struct {
	RefusedGranted float64 `json:"refused_granted"` // part of an impossible rate that was granted
	RefusedFits    float64 `json:"refused_fits"`    // part of it that would fit, as the broker said
	Windows        Parts   `json:"windows"`
	Moving         Parts   `json:"moving"` // in the time after each move
}

// Limit is the result of limits, as parts of the limits.
type Limit struct {
	Limit float64 `json:"limit"`
	Total float64 `json:"total"`
	Other float64 `json:"other"` // what another application moved beside the first, MB/s
}

// Halved is the result of a disk that becomes half as fast.
type Halved struct {
	BrokenAfterS  float64 `json:"broken_after_s"`   // until the second rate was reported reduced
	First         float64 `json:"first"`            // part of its rate while the disk was slow
	Second        float64 `json:"second"`           // likewise
	SecondGranted float64 `json:"second_granted"`   // part of its rate that was granted meanwhile
	Plain         float64 `json:"plain"`            // part of the disk's time without a guaranteed rate
	Elsewhere     float64 `json:"elsewhere"`        // part of its rate on another disk meanwhile
	RestoredS     float64 `json:"restored_after_s"` // until the second rate was admitted again
}

// Key returns the turn's key.
func (t Turn) Key() experiment.RowTurn { return experiment.RowTurn{Row: t.Row, Run: t.Run} }

func (t Turn) String() string {
	switch {
	case t.One != nil && len(t.One.Windows) == 0:
		return fmt.Sprintf("the disk moved %.3f of its rate", t.One.Moved)
	case t.One != nil:
		text := fmt.Sprintf("%.3f of the rate; the disk moved %.3f of its own", t.One.Had, t.One.Moved)
		for _, w := range t.One.Windows {
			text += fmt.Sprintf("; in %.0f s at least %.3f, %.1f quanta short", w.LengthS, slices.Min(w.Parts), w.ShortQuanta)
		}
		return text + fmt.Sprintf(" (D %d)", t.One.Depth)
	case t.Cluster != nil:
		return fmt.Sprintf("in %.0f s at least %.3f of the rate, in the %.0f s after a move %.3f; of the impossible rate %.2f was granted and %.2f would fit",
			t.Cluster.Windows.LengthS, slices.Min(t.Cluster.Windows.Parts), t.Cluster.Moving.LengthS, slices.Min(t.Cluster.Moving.Parts), t.Cluster.RefusedGranted, t.Cluster.RefusedFits)
	case t.Limit != nil:
		return fmt.Sprintf("%.3f of the limit, %.3f of the total limit", t.Limit.Limit, t.Limit.Total)
	case t.Halved != nil:
		h := t.Halved
		return fmt.Sprintf("broken after %.1f s; then %.3f and %.3f of the rates (granted %.3f), %.3f elsewhere; restored after %.1f s",
			h.BrokenAfterS, h.First, h.Second, h.SecondGranted, h.Elsewhere, h.RestoredS)
	}
	return ""
}

// turn performs one row.
func (m *machine) turn(ctx context.Context, k experiment.RowTurn) (t Turn, err error) {
	t = Turn{Row: k.Row, Run: k.Run}
	switch row := rowOf(k.Row); {
	case row.One:
		t.One, err = m.one(ctx, row)
	case row.Name == rowCluster:
		t.Cluster, err = m.cluster(ctx)
	case row.Name == rowLimit:
		t.Limit, err = m.limits(ctx)
	default:
		t.Halved, err = m.halved(ctx)
	}
	return t, err
}

// within runs tasks on disks with their models, and calls measure when the load has settled. Afterwards it
// ends the tasks on disks without a model, and deletes the files of the given applications.
func (m *machine) within(ctx context.Context, f *contenders.Field, tasks []contenders.Task, nodes []int, written []int, measure func(*contenders.Load) error) (err error) {
	load := f.Start(ctx, tasks)
	defer func() {
		load.End()
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, m.unlimited(), load.Stop(), f.Remove(after, written...))
	}()
	if err := m.limit(nodes...); err != nil {
		return err
	}
	if err := experiment.Pause(ctx, seconds(m.setup.SettlingS)); err != nil {
		return err
	}
	if err := measure(load); err != nil {
		return err
	}
	return load.Failed()
}

// sum returns the usage of a flow over several nodes in each window.
func (m *machine) sum(f *contenders.Field, owner judge.Owner, flow int, windows []judge.Window, nodes ...int) ([]judge.Usage, error) {
	total := make([]judge.Usage, len(windows))
	for _, i := range nodes {
		accounts, err := judge.Disk(m.Disks[i], owner, windows...)
		if err != nil {
			return nil, err
		}
		for k, a := range accounts {
			u := a.Owners[contenders.Flow(flow)]
			total[k].ReadBytes += u.ReadBytes
			total[k].WriteBytes += u.WriteBytes
			total[k].Service += u.Service
		}
	}
	return total, nil
}

// sliding returns windows of the given length within the span, a quarter of a second apart.
func sliding(span judge.Window, length time.Duration) (windows []judge.Window) {
	for from := span.From; from+int64(length) <= span.To; from += int64(250 * time.Millisecond) {
		windows = append(windows, judge.Window{From: from, To: from + int64(length)})
	}
	return windows
}

// newParts returns the parts of a rate in windows of one length. had is what the application had in each window, and
// rate is per second; quantum is in the same unit.
func newParts(length time.Duration, had []float64, rate, quantum float64) Parts {
	p := Parts{LengthS: length.Seconds(), ShortQuanta: math.Inf(-1)}
	due := rate * length.Seconds()
	for _, h := range had {
		p.Parts = append(p.Parts, round(h/due))
		p.ShortQuanta = max(p.ShortQuanta, round((due-h)/quantum))
	}
	return p
}

func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// one measures a row on one disk: an application that reads beside as many readers as writers.
func (m *machine) one(ctx context.Context, row Row) (o *One, err error) {
	node := 0
	if row.SSD {
		node = solid
	}
	model := m.setup.model(row)
	tasks := contenders.Tasks(one, 2, true, node)
	numbers, writers := []int{one}, []int{}
	for i := range m.setup.Aggressors {
		number := one + 1 + i
		tasks = append(tasks, contenders.Tasks(number, 1, i%2 == 0, node)...)
		if numbers = append(numbers, number); i%2 != 0 {
			writers = append(writers, number)
		}
	}
	// Natively, all readers advance alike and writers less. Under Penstock, the application has its rate and
	// the aggressors have the rest.
	lasts := m.setup.SettlingS + m.setup.WindowS + 5
	readers := float64(m.setup.Aggressors/2 + 2)
	if err := m.files.Place(ctx, tasks[:2], int64(float64(model.BytesPerSecond)*lasts*max(m.setup.Reserve/2, 1/readers))); err != nil {
		return nil, err
	}
	if err := m.files.Place(ctx, tasks[2:], int64(float64(model.BytesPerSecond)*lasts/readers)); err != nil {
		return nil, err
	}
	o = &One{}
	rate, unit := m.setup.Reserve*float64(time.Second), func(u judge.Usage) float64 { return float64(u.Service) }
	quantum := float64(model.Cost(disk.Read, diskBytes).PerMiB) * float64(m.setup.Quantum) / mib
	text := fmt.Sprintf("%g%%", 100*m.setup.Reserve)
	if row.InBytes {
		rate, unit = m.setup.Reserve*float64(model.BytesPerSecond), func(u judge.Usage) float64 { return float64(u.Bytes()) }
		quantum, text = float64(m.setup.Quantum), fmt.Sprintf("%.0f", rate)
	}
	if row.Native {
		defer func() { err = errors.Join(err, m.startNode(ctx, node)) }()
		if err := m.Nodes[node].Stop(); err != nil {
			return nil, err
		}
	} else if err := m.files.Apply(ctx, fmt.Sprintf("rules:\n  - {flow: %s, reserve: %s}\n", contenders.Flow(one), text)); err != nil {
		return nil, err
	}
	err = m.within(ctx, m.files, tasks, []int{node}, writers, func(load *contenders.Load) error {
		var before, after status.Reserve
		if !row.Native {
			if before, _, err = m.reserved(ctx, node, one); err != nil {
				return err
			}
		}
		span := judge.Window{From: disk.Monotonic()}
		for begun := time.Now(); time.Since(begun) < seconds(m.setup.WindowS); {
			if err := experiment.Pause(ctx, time.Second); err != nil {
				return err
			}
			if row.Native {
				continue
			}
			var depth int
			if after, depth, err = m.reserved(ctx, node, one); err != nil {
				return err
			}
			o.Depth = max(o.Depth, depth)
		}
		span.To = disk.Monotonic()
		if err := load.Failed(); err != nil {
			return err
		}
		o.KeptS, o.BrokenS = round(float64(after.KeptNS-before.KeptNS)/1e9), round(float64(after.BrokenNS-before.BrokenNS)/1e9)
		owner, err := m.files.Owners(ctx, numbers...)
		if err != nil {
			return err
		}
		lengths := []time.Duration{time.Second, 5 * time.Second, 20 * time.Second}
		windows := []judge.Window{span}
		for _, l := range lengths {
			windows = append(windows, sliding(span, l)...)
		}
		accounts, err := judge.Disk(m.Disks[node], owner, windows...)
		if err != nil {
			return err
		}
		passed := float64(span.To - span.From)
		total := accounts[0].Total()
		o.Moved = round((float64(total.ReadBytes)*float64(model.Cost(disk.Read, 0).PerMiB) + float64(total.WriteBytes)*float64(model.Cost(disk.Write, 0).PerMiB)) / mib / passed)
		o.Busy = round(float64(total.Service) / passed)
		o.Had = round(unit(accounts[0].Owners[contenders.Flow(one)]) / (rate * passed / 1e9))
		if row.Native {
			return nil
		}
		rest := accounts[1:]
		for _, l := range lengths {
			n := len(sliding(span, l))
			var had []float64
			for _, a := range rest[:n] {
				had = append(had, unit(a.Owners[contenders.Flow(one)]))
			}
			o.Windows, rest = append(o.Windows, newParts(l, had, rate, quantum)), rest[n:]
		}
		return nil
	})
	return o, err
}

// startNode starts a daemon that a native row has stopped.
func (m *machine) startNode(ctx context.Context, node int) error {
	if err := m.StartNode(ctx, node, nil); err != nil {
		return err
	}
	return m.ready(ctx)
}

// moves are the nodes of the application's tasks, one after the other.
var moves = [][]int{{0, 1}, {1, 2}, {0, 2}}

// cluster measures a total rate on three nodes.
func (m *machine) cluster(ctx context.Context) (c *Cluster, err error) {
	const each = 3 // tasks of the application on a node
	var aggressors []contenders.Task
	numbers, writers := []int{whole}, []int{}
	for i := range m.setup.Aggressors / 2 {
		number := whole + 1 + i
		aggressors = append(aggressors, contenders.Tasks(number, 1, i%2 == 0, 0, 1, 2)...)
		if numbers = append(numbers, number); i%2 != 0 {
			writers = append(writers, number)
		}
	}
	lasts := m.setup.SettlingS + m.setup.PhaseS*float64(len(moves)) + 30
	if err := m.files.Place(ctx, aggressors, int64(float64(m.setup.HDDRate)*lasts*1.5/float64(m.setup.Aggressors/2+each))); err != nil {
		return nil, err
	}
	visits := 2.
	if err := m.moving.Place(ctx, contenders.Tasks(whole, each, true, 0, 1, 2), int64(float64(m.setup.Total)/2/each*1.4*visits*(m.setup.PhaseS+20))); err != nil {
		return nil, err
	}
	rule := func(rate int64) string {
		return fmt.Sprintf("rules:\n  - {flow: %s, total_reserve: %d}\n", contenders.Flow(whole), rate)
	}
	const impossible = 10
	if err := m.files.Apply(ctx, rule(impossible*m.setup.HDDRate)); err != nil {
		return nil, err
	}
	c = &Cluster{Moving: Parts{LengthS: m.setup.MovingS, ShortQuanta: math.Inf(-1)}}
	err = m.within(ctx, m.files, aggressors, []int{0, 1, 2}, writers, func(*contenders.Load) (err error) {
		load := m.moving.Start(ctx, contenders.Tasks(whole, each, true, moves[0]...))
		defer func() {
			load.End()
			err = errors.Join(err, m.unlimited(), load.Stop())
		}()
		refused, err := m.awaitPromise(ctx, whole, reserve.Queued)
		if err != nil {
			return err
		}
		c.RefusedGranted, c.RefusedFits = round(refused.Granted), round(refused.Fits)
		if err := m.files.Apply(ctx, rule(m.setup.Total)); err != nil {
			return err
		}
		if _, err := m.awaitPromise(ctx, whole, reserve.Admitted); err != nil {
			return err
		}
		if err := experiment.Pause(ctx, seconds(m.setup.MovingS)); err != nil {
			return err
		}
		var settled, moved []judge.Window
		for i, nodes := range moves {
			if i > 0 {
				next := m.moving.Start(ctx, contenders.Tasks(whole, each, true, nodes...))
				load.End()
				before := load
				load = next
				w, err := window(ctx, seconds(m.setup.MovingS))
				if err != nil {
					return err
				}
				if err := before.Failed(); err != nil {
					return err
				}
				moved = append(moved, w)
			}
			w, err := window(ctx, seconds(m.setup.PhaseS-m.setup.MovingS))
			if err != nil {
				return err
			}
			settled = append(settled, w)
		}
		owner, err := m.moving.Owners(ctx, numbers...)
		if err != nil {
			return err
		}
		const length = 30 * time.Second
		var windows []judge.Window
		for _, s := range settled {
			windows = append(windows, sliding(s, length)...)
		}
		measured := func(windows []judge.Window) (had []float64, err error) {
			usage, err := m.sum(m.moving, owner, whole, windows, 0, 1, 2)
			for _, u := range usage {
				had = append(had, float64(u.Bytes()))
			}
			return had, err
		}
		had, err := measured(windows)
		if err != nil {
			return err
		}
		c.Windows = newParts(length, had, float64(m.setup.Total), float64(m.setup.Quantum))
		if had, err = measured(moved); err != nil {
			return err
		}
		c.Moving = newParts(seconds(m.setup.MovingS), had, float64(m.setup.Total), float64(m.setup.Quantum))
		return nil
	})
	return c, err
}

// limits measures a limit on one disk and a total limit on two nodes.
func (m *machine) limits(ctx context.Context) (l *Limit, err error) {
	own, other := contenders.Tasks(limited, 2, true, 0), contenders.Tasks(limited+1, 1, true, 0)
	total, beside := contenders.Tasks(allowed, 2, true, 1, 2), contenders.Tasks(allowed+1, 1, true, 1, 2)
	all := slices.Concat(own, other, total, beside)
	lasts := m.setup.SettlingS + m.setup.WindowS + 10
	if err := m.files.Place(ctx, all, int64(float64(m.setup.HDDRate)*lasts)); err != nil {
		return nil, err
	}
	if err := m.files.Apply(ctx, fmt.Sprintf("rules:\n  - {flow: %s, limit: %d}\n  - {flow: %s, total_limit: %d}\n",
		contenders.Flow(limited), m.setup.Limit, contenders.Flow(allowed), m.setup.TotalLimit)); err != nil {
		return nil, err
	}
	l = &Limit{}
	numbers := []int{limited, limited + 1, allowed, allowed + 1}
	err = m.within(ctx, m.files, all, []int{0, 1, 2}, numbers, func(*contenders.Load) error {
		span, err := window(ctx, seconds(m.setup.WindowS))
		if err != nil {
			return err
		}
		owner, err := m.files.Owners(ctx, numbers...)
		if err != nil {
			return err
		}
		rate := func(flow int, nodes ...int) float64 {
			usage, e := m.sum(m.files, owner, flow, []judge.Window{span}, nodes...)
			if err = errors.Join(err, e); e != nil {
				return 0
			}
			return float64(usage[0].Bytes()) / (float64(span.To-span.From) / 1e9)
		}
		l.Limit, l.Total = round(rate(limited, 0)/float64(m.setup.Limit)), round(rate(allowed, 1, 2)/float64(m.setup.TotalLimit))
		l.Other = round(rate(limited+1, 0) / megabyte)
		return err
	})
	return l, err
}

// halved measures two guaranteed rates, together two thirds of a disk, when the disk becomes half as fast.
func (m *machine) halved(ctx context.Context) (h *Halved, err error) {
	rate := m.setup.HDDRate / 3
	tasks := slices.Concat(contenders.Tasks(first, 2, true, 0), contenders.Tasks(second, 2, true, 0), contenders.Tasks(plain, 1, false, 0),
		contenders.Tasks(elsewhere, 2, true, 1), contenders.Tasks(elsewhere+1, 1, false, 1))
	const lasts = 70
	for _, t := range tasks {
		if err := m.files.Place(ctx, []contenders.Task{t}, rate/2*lasts*2); err != nil {
			return nil, err
		}
	}
	text := "rules:\n"
	for _, a := range []int{first, second, elsewhere} {
		text += fmt.Sprintf("  - {flow: %s, reserve: %d}\n", contenders.Flow(a), rate)
	}
	if err := m.files.Apply(ctx, text); err != nil {
		return nil, err
	}
	h = &Halved{}
	numbers := []int{first, second, plain, elsewhere, elsewhere + 1}
	err = m.within(ctx, m.files, tasks, []int{0, 1}, []int{plain, elsewhere + 1}, func(*contenders.Load) error {
		if _, err := m.awaitReserve(ctx, 0, second, "the second rate is admitted", func(r status.Reserve) bool { return r.State == reserve.Admitted.String() }); err != nil {
			return err
		}
		slow := disk.HDD(m.setup.HDDRate / 2)
		if err := m.SetModel(slow, m.Disks[0]); err != nil {
			return err
		}
		after, err := m.awaitReserve(ctx, 0, second, "the second rate is reported reduced", func(r status.Reserve) bool { return r.State == reserve.Reduced.String() })
		if err != nil {
			return err
		}
		h.BrokenAfterS = round(after.Seconds())
		if err := experiment.Pause(ctx, 5*time.Second); err != nil {
			return err
		}
		var granted []float64
		span := judge.Window{From: disk.Monotonic()}
		for range 20 {
			if err := experiment.Pause(ctx, time.Second); err != nil {
				return err
			}
			r, _, err := m.reserved(ctx, 0, second)
			if err != nil {
				return err
			}
			granted = append(granted, r.Granted)
		}
		span.To = disk.Monotonic()
		for _, g := range granted {
			h.SecondGranted += g / float64(len(granted))
		}
		h.SecondGranted = round(h.SecondGranted)
		if err := m.limit(0); err != nil {
			return err
		}
		if after, err = m.awaitReserve(ctx, 0, second, "the second rate is admitted again", func(r status.Reserve) bool { return r.State == reserve.Admitted.String() }); err != nil {
			return err
		}
		h.RestoredS = round(after.Seconds())
		owner, err := m.files.Owners(ctx, numbers...)
		if err != nil {
			return err
		}
		passed := float64(span.To-span.From) / 1e9
		part := func(flow, node int) float64 {
			usage, e := m.sum(m.files, owner, flow, []judge.Window{span}, node)
			if err = errors.Join(err, e); e != nil {
				return 0
			}
			if flow == plain {
				return round(usage[0].Service.Seconds() / passed)
			}
			return round(float64(usage[0].Bytes()) / passed / float64(rate))
		}
		h.First, h.Second, h.Plain, h.Elsewhere = part(first, 0), part(second, 0), part(plain, 0), part(elsewhere, 1)
		return err
	})
	return h, err
}
