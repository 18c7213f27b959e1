package applications

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"penstock/wire/jsonstream"
)

// What the cluster managers do not report, the application's own server does: the progress of a Spark application (YARN reports
// 10 % of it from start to end, and Spark's master nothing), and whether a MapReduce job has a reduce phase. The broker asks for it
// through the proxy of the ResourceManager or of Spark's master, and connects to no other address: an address that an application
// chooses could be that of any server. So a master without a proxy (spark.ui.reverseProxy) and an application without a server
// (spark.ui.enabled=false) leave the progress unknown.
//
// The answers are an application's own, and may be wrong, long, late or missing. Only a few numbers are taken from them, one
// request is open at a time, and an application that fails is asked less and less often.
const (
	proxyTimeout = 5 * time.Second
	proxyMaxBody = 8 << 20
	// maxFollowed is the number of applications that are asked. Of further ones, the progress is not known.
	maxFollowed = 1000
	// asksPerTick is the largest number of requests to a cluster manager's proxy in one tick (1 s).
	asksPerTick = 10
	askInterval = 5 * time.Second // between two requests for one application
	maxRetry    = 10 * time.Minute
	// runStale is the age at which an application's answer does not count any more.
	runStale = time.Minute
	// forgetAfter is the time after which an application is not asked any more, if nobody wants its progress.
	forgetAfter = time.Minute
	maxJobs     = 10_000 // of one Spark application; Spark itself keeps 1,000 (spark.ui.retainedJobs)
	maxMRJobs   = 100    // of one MapReduce application, which has one
)

// reducesBegin is the progress of a MapReduce job at which its maps have ended: the set-up counts for 5 %, maps and reduces for 45 %
// each, and the clean-up for 5 % (JobImpl.createTasks of Hadoop 3.4.2).
const reducesBegin = 0.5

const mapReduceType = "MAPREDUCE"

// Run is what is known of the run of an application.
type Run struct {
	Progress  float64 // part that is done, 0 to 1; below 0: not known
	Work      float64 // the whole work of which Progress is the part, in tasks; 0: it does not change
	Boundary  float64 // the progress at which a phase with another pace may begin; 0: none is known
	Submitted int64   // Unix ms; 0: not known
	Ended     bool
	Succeeded bool  // it has ended well. This may be known some seconds after Ended
	Finished  int64 // Unix ms; 0: not known
}

// follower is a cluster manager with a proxy to the applications' own servers.
type follower interface {
	// ask returns what the server of an application says. It is called by one goroutine.
	ask(ctx context.Context, a *Application) (answer, error)
}

// answer is what an application's own server says.
type answer struct {
	progress, work float64 // of Spark; progress below 0: no job is running
	mapOnly        bool    // of MapReduce: there is no reduce phase
}

// followed is the state of an application whose own server is asked.
type followed struct {
	answer
	from     *source
	answered time.Time // zero: never
	wanted   time.Time // when RunOf was last called
	due      time.Time // of the next request
	failures int
	done     bool // nothing more is to be learned
}

// RunOf returns what is known of the run of a flow's application. It does not wait for an answer; if the application's own server may know
// more, it is asked.
func (d *Directory) RunOf(flow string) Run {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.apps[flow]
	if e == nil {
		return Run{Progress: -1}
	}
	e.asked = true
	r := Run{Progress: e.Progress, Submitted: e.Submitted, Ended: e.Ended, Succeeded: e.Succeeded, Finished: e.Finished}
	var a answer
	fresh := false
	if _, can := e.from.clusterManager.(follower); can && !e.Ended && e.State == "RUNNING" {
		f := d.followed[flow]
		if f == nil && len(d.followed) < maxFollowed && (e.Type == sparkType || e.Type == mapReduceType) {
			f = &followed{from: e.from}
			d.followed[flow] = f
		}
		if f != nil {
			f.wanted = time.Now()
			a, fresh = f.answer, !f.answered.IsZero() && (f.done || time.Since(f.answered) < runStale)
		}
	}
	switch {
	case e.Type == sparkType && fresh:
		r.Progress, r.Work = a.progress, a.work
	case e.Type == sparkType:
		r.Progress = -1
	case e.Type == mapReduceType && !(fresh && a.mapOnly):
		r.Boundary = reducesBegin
	}
	return r
}

// follow asks the own servers of a source's applications until ctx ends.
func (d *Directory) follow(ctx context.Context, s *source, by follower) {
	ticker := time.NewTicker(d.tick)
	defer ticker.Stop()
	said := false
	for {
		for range asksPerTick {
			flow, a := d.nextFollowed(s)
			if flow == "" || ctx.Err() != nil {
				break
			}
			got, err := by.ask(ctx, &a)
			if err != nil && !said && ctx.Err() == nil {
				said = true
				d.log.Info("application directory: an application's own server does not answer through the proxy; its progress, or whether it has a reduce phase, is not known", "source", s.name(), "application", flow, "error", err)
			}
			d.noteAnswer(flow, got, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// nextFollowed returns the application of a source whose request has been due for the longest time; empty: none is due. It
// forgets those that have ended or that nobody wants.
func (d *Directory) nextFollowed(s *source) (flow string, a Application) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	var due time.Time
	for name, f := range d.followed {
		e := d.apps[name]
		switch {
		case f.from != s:
		case e == nil || e.Ended || now.Sub(f.wanted) > forgetAfter:
			delete(d.followed, name)
		case f.done || f.due.After(now) || flow != "" && !f.due.Before(due):
		default:
			flow, a, due = name, e.Application, f.due
		}
	}
	return flow, a
}

// noteAnswer stores an answer.
func (d *Directory) noteAnswer(flow string, got answer, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.followed[flow]
	if f == nil {
		return
	}
	now := time.Now()
	if err != nil {
		f.due = now.Add(min(askInterval<<min(f.failures, 20), maxRetry))
		f.failures++
		return
	}
	f.answer, f.answered, f.failures, f.due = got, now, 0, now.Add(askInterval)
	e := d.apps[flow]
	f.done = e != nil && e.Type == mapReduceType // the numbers of tasks do not change
}

// askThrough asks an application's own server through a proxy.
func askThrough(ctx context.Context, proxy *servers, a *Application) (got answer, err error) {
	defer proxy.takeBusyTime()
	switch a.Type {
	case sparkType:
		err = proxy.get(ctx, "/proxy/"+a.Flow+"/api/v1/applications/"+a.Flow+"/jobs", nil, func(d *json.Decoder) (err error) {
			got.progress, got.work, err = parseSparkJobs(d)
			return err
		})
	case mapReduceType:
		err = proxy.get(ctx, "/proxy/"+a.Flow+"/ws/v1/mapreduce/jobs", nil, func(d *json.Decoder) (err error) {
			got.mapOnly, err = parseMapReduceJobs(d)
			return err
		})
	default:
		err = errors.New("no server is known for this type of application")
	}
	return got, err
}

// parseSparkJobs reads a driver's list of jobs (JobData of org.apache.spark.status.api.v1), and returns the part of all jobs' tasks that are done,
// and the number of all tasks. progress is below 0 if no job is running: then nobody knows what the driver does next.
func parseSparkJobs(d *json.Decoder) (progress, work float64, err error) {
	var done, all int64
	jobs, running := map[int64]bool{}, false
	err = jsonstream.Array(d, func() error {
		var j struct {
			ID        *int64 `json:"jobId"`
			Status    string `json:"status"`
			Tasks     int64  `json:"numTasks"`
			Skipped   int64  `json:"numSkippedTasks"`
			Completed int64  `json:"numCompletedTasks"`
			Indices   *int64 `json:"numCompletedIndices"` // without a second attempt of the same task
		}
		if err := d.Decode(&j); err != nil {
			return err
		}
		ended := j.Completed
		if j.Indices != nil {
			ended = *j.Indices
		}
		switch {
		case j.ID == nil || jobs[*j.ID]:
			return errors.New("a job without a number, or two with the same one")
		case len(jobs) == maxJobs:
			return fmt.Errorf("more than %d jobs", maxJobs)
		case slices.ContainsFunc([]int64{*j.ID, j.Tasks, j.Skipped, j.Completed, ended}, func(n int64) bool { return n < 0 || n > math.MaxInt32 }):
			return fmt.Errorf("job %d: a number is out of range", *j.ID)
		}
		jobs[*j.ID] = true
		done += ended
		if j.Status == "RUNNING" {
			running = true
			ended = max(ended, j.Tasks-j.Skipped)
		}
		all += ended
		return nil
	})
	switch {
	case err != nil:
		return 0, 0, err
	case len(jobs) > 0 && !jobs[0]:
		return 0, 0, errors.New("the driver has forgotten its first jobs (spark.ui.retainedJobs)")
	case !running || all == 0:
		return -1, 0, nil
	}
	return float64(done) / float64(all), float64(all), nil
}

// parseMapReduceJobs reads the list of jobs of a MapReduce ApplicationMaster, and reports whether it has maps only.
func parseMapReduceJobs(d *json.Decoder) (mapOnly bool, err error) {
	var maps, reduces int64
	jobs := 0
	err = jsonstream.Object(d, func(name string) (bool, error) {
		if name != "jobs" {
			return false, nil
		}
		return true, jsonstream.Object(d, func(name string) (bool, error) {
			if name != "job" {
				return false, nil
			}
			return true, jsonstream.Array(d, func() error {
				var j struct {
					Maps    int64 `json:"mapsTotal"`
					Reduces int64 `json:"reducesTotal"`
				}
				if err := d.Decode(&j); err != nil {
					return err
				}
				if jobs++; jobs > maxMRJobs || j.Maps < 0 || j.Reduces < 0 {
					return fmt.Errorf("more than %d jobs, or a number of tasks below 0", maxMRJobs)
				}
				maps, reduces = max(maps, j.Maps), max(reduces, j.Reduces)
				return nil
			})
		})
	})
	if err == nil && maps+reduces == 0 {
		err = errors.New("the tasks are not known yet")
	}
	return err == nil && reduces == 0, err
}
