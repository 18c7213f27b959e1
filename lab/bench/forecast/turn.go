package forecast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/lab/client"
	"penstock/lab/experiment"
	"penstock/lab/hadoop"
	"penstock/wire/cluster"
)

const (
	// askEvery is the time between two questions to the broker. The broker itself reads YARN's progress every 5 s.
	askEvery = 500 * time.Millisecond
	// cleanUp is the longest time for the removal of what a turn has left, also after an interruption.
	cleanUp = 2 * time.Minute
	// afterChange is how long after a change of the weights the broker is not asked: the present share is the median over the last 10 s.
	afterChange = 10 * time.Second
	// settling is how long the background runs before the application starts.
	settling = 5 * time.Second
)

// turn performs a row once.
func (m *machine) turn(ctx context.Context, k experiment.RowTurn) (t Turn, err error) {
	t = Turn{Row: k.Row, Run: k.Run}
	r := rowOf(k.Row)
	if err := m.limit(false); err != nil {
		return t, err
	}
	if err := m.prepare(ctx, r); err != nil {
		return t, err
	}
	var j *job
	var b *background
	defer func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		err = errors.Join(err, m.limit(false))
		if b != nil {
			b.jvm.Stop()
		}
		if j != nil {
			if err != nil {
				err = errors.Join(err, j.kill(after))
			}
			err = errors.Join(err, m.remove(after, j))
		}
	}()
	// Dirty pages are written before the disk is slow. The daemon starts again, because it has learned the cost of requests on a disk
	// without a limit: device time would be too small for minutes.
	if err := errors.Join(m.SetPolicy(policy(nil)), m.Forget(), m.RestartNode(ctx, 0, nil), m.limit(true)); err != nil {
		return t, err
	}
	if err := m.AwaitAgents(ctx, 0, serverAgents); err != nil {
		return t, err
	}
	if !r.Profile {
		if b, err = m.beginBackground(); err != nil {
			return t, err
		}
		if err := errors.Join(m.moving(ctx), experiment.Pause(ctx, settling)); err != nil {
			return t, err
		}
	}
	if j, err = m.submit(ctx, r.Job); err != nil {
		return t, err
	}
	if r.Profile {
		err = m.profile(ctx, &t, j)
	} else {
		err = m.foresee(ctx, &t, r, j, b)
	}
	if err != nil {
		return t, err
	}
	if err := m.limit(false); err != nil { // checks take no time of the disk
		return t, err
	}
	return t, j.check(ctx)
}

// moving waits until the disk has moved a few bytes.
func (m *machine) moving(ctx context.Context) error {
	read, written, err := m.Disks[0].Counters()
	if err != nil {
		return err
	}
	return m.Await(ctx, "the background uses the disk", func(context.Context) (bool, error) {
		r, w, err := m.Disks[0].Counters()
		return r+w-read-written >= 4*mib, err
	})
}

// ended is the end of a job.
type ended struct {
	status hadoop.Status
	err    error
}

// watch waits for a job's end in the background.
func watch(ctx context.Context, j *job) <-chan ended {
	end := make(chan ended, 1)
	go func() {
		status, err := j.wait(ctx)
		end <- ended{status, err}
	}()
	return end
}

// foresee asks the broker for the application's end until it ends, and changes the weights in rows with a change.
func (m *machine) foresee(ctx context.Context, t *Turn, r Row, j *job, b *background) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := watch(ctx, j)
	v := &vigil{setup: m.setup, change: r.Changed, run: t.Run}
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		select {
		case e := <-end:
			if e.err != nil {
				return e.err
			}
			v.conclude(t, e.status.Started, e.status.Finished)
			return nil
		case err := <-b.ended:
			return err
		case <-ticker.C:
		}
		answer, err := m.broker.Forecast(ctx, &cluster.ForecastRequest{Application: j.id})
		if err != nil {
			v.refused = err.Error() // at first, the application is at no node
			continue
		}
		if v.take(time.Now(), answer) {
			application, beside := m.setup.weights(t.Run)
			weights := map[string]int{j.id: application, client.Application(backgroundNumber): beside}
			if err := errors.Join(m.SetPolicy(policy(weights)), m.inForce(ctx, weights)); err != nil {
				return err
			}
		}
	}
}

// vigil takes the broker's answers about one application.
type vigil struct {
	setup  Setup
	change bool
	run    int

	changed   *Change
	asked     map[string]int // marks of the progress, and of the work, so far
	got       []Forecast
	curve     []Point
	refused   string      // the broker's last refusal
	at        []time.Time // of got
	curveAt   []time.Time
	changedAt time.Time
}

// take takes an answer. It returns true if the weights are to be changed now.
func (v *vigil) take(now time.Time, a *cluster.ForecastAnswer) (change bool) {
	progress := a.GetProgress()
	if progress < 0 {
		v.refused = a.GetReason()
		return false
	}
	if progress >= 1 || a.GetEnded() {
		return false // it has ended: there is nothing to foresee
	}
	if n := len(v.curve); n == 0 || v.curve[n-1].Progress != progress {
		v.curve, v.curveAt = append(v.curve, Point{Progress: progress}), append(v.curveAt, now)
	}
	done := map[string]float64{ofProgress: progress}
	part := progress // of the work, as well as the broker knows it
	if a.GetEarlierRuns() > 0 {
		part = a.GetDone()
		done[ofWork] = part
	}
	if v.change && v.changed == nil && part >= v.setup.ChangeAt {
		application, background := v.setup.weights(v.run)
		v.changed, v.changedAt = &Change{Progress: progress, Application: application, Background: background}, now
		return true
	}
	if v.change && (v.changed == nil || now.Sub(v.changedAt) < afterChange) {
		// A forecast does not foresee a change, and the share of the last seconds is not the new one yet. Marks that are passed meanwhile
		// count when the time has come.
		return false
	}
	if v.asked == nil {
		v.asked = map[string]int{}
	}
	for _, of := range []string{ofProgress, ofWork} {
		part, known := done[of]
		next := v.asked[of]
		for known && next < len(v.setup.Marks) && part >= v.setup.Marks[next] {
			next++
		}
		if next == v.asked[of] {
			continue
		}
		v.asked[of] = next
		// Progress may pass several marks between two of its reports: one answer is one forecast, of the mark that is nearest.
		f := Forecast{Of: of, Mark: v.setup.Marks[next-1], Progress: progress, Done: a.GetDone(), Runs: int(a.GetEarlierRuns()), Share: a.GetPresent(),
			DiskPart: a.GetDiskPart(), DiskError: a.GetDiskError(), Reason: a.GetReason()}
		if f.Reason == "" {
			f.expected, f.low, f.high = time.UnixMilli(a.GetEndUnixMs()), time.UnixMilli(a.GetLowUnixMs()), time.UnixMilli(a.GetHighUnixMs())
		}
		v.got, v.at = append(v.got, f), append(v.at, now)
	}
	return false
}

// conclude fills in a turn, when the application's start and end are known. All its times then count from the start.
func (v *vigil) conclude(t *Turn, started, finished time.Time) {
	since := func(at time.Time) float64 { return round(at.Sub(started).Seconds()) }
	t.RuntimeS = since(finished)
	for i, f := range v.got {
		if f.AtS = since(v.at[i]); f.Reason == "" {
			f.ExpectedS, f.LowS, f.HighS = since(f.expected), since(f.low), since(f.high)
		}
		t.Forecasts = append(t.Forecasts, f)
	}
	for i, p := range v.curve {
		p.AtS = since(v.curveAt[i])
		t.Curve = append(t.Curve, p)
	}
	if t.Change = v.changed; t.Change != nil {
		t.Change.AtS = since(v.changedAt)
	}
	if len(t.Forecasts) == 0 {
		t.Note = fmt.Sprintf("no forecast: the broker's last progress was %s", v.lastProgress())
	}
}

func (v *vigil) lastProgress() string {
	if n := len(v.curve); n > 0 {
		return fmt.Sprintf("%.0f %%", 100*v.curve[n-1].Progress)
	}
	return "unknown: " + v.refused
}
