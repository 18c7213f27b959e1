package applications

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestYARNProgress: the progress is a percentage, and one that cannot be is not known. That of Spark says nothing.
func TestYARNProgress(t *testing.T) {
	for name, test := range map[string]struct {
		progress any
		kind     string
		want     float64
	}{
		"half": {50.0, mapReduceType, 0.5}, "none": {0, mapReduceType, 0}, "all": {100.0, mapReduceType, 1}, "a number with many digits": {45.000004, "TEZ", 0.45000004},
		"not reported": {nil, mapReduceType, -1}, "too much": {100.1, mapReduceType, -1}, "below 0": {-1.0, mapReduceType, -1}, "Spark": {10.0, sparkType, -1},
	} {
		m := startManager(t)
		m.set(nil, anApp(1, 5, with("progress", test.progress), with("applicationType", test.kind)))
		d, _ := directory(t, Options{ResourceManagers: []string{m.URL}})
		if err := list(t, d); err != "" {
			t.Fatal(err)
		}
		r := d.RunOf(id(1))
		if got := d.Progress(id(1)); got != test.want && test.kind != sparkType {
			t.Errorf("%s: %v reported, want %v", name, got, test.want)
		}
		if r.Progress != test.want || r.Submitted != 5 || r.Ended || r.Work != 0 {
			t.Errorf("%s: %+v, want %v", name, r, test.want)
		}
		if (r.Boundary == reducesBegin) != (test.kind == mapReduceType) {
			t.Errorf("%s: boundary %v", name, r.Boundary)
		}
	}
	m := startManager(t)
	m.set(nil, anApp(1, 5, with("progress", "NaN")))
	d, _ := directory(t, Options{ResourceManagers: []string{m.URL}})
	if err := list(t, d); !strings.Contains(err, "progress") {
		t.Errorf("a text as the progress: %q", err)
	}
	if r := d.RunOf(id(9)); r.Progress != -1 || r.Ended {
		t.Errorf("an unknown application: %+v", r)
	}
}

// aJob is a job as a Spark driver reports it.
func aJob(id, tasks, completed, skipped int, status string) string {
	return fmt.Sprintf(`{"jobId":%d,"name":"count at x.py:7","submissionTime":"2026-11-25T10:00:00.000GMT","stageIds":[0,1],"jobTags":[],"status":%q,"numTasks":%d,"numActiveTasks":1,
 "numCompletedTasks":%d,"numSkippedTasks":%d,"numFailedTasks":0,"numKilledTasks":0,"numCompletedIndices":%d,"numActiveStages":1,"killedTasksSummary":{}}`, id, status, tasks, completed+1, skipped, completed)
}

func TestSparkJobs(t *testing.T) {
	done, running := aJob(0, 12, 8, 4, "SUCCEEDED"), aJob(1, 32, 2, 0, "RUNNING")
	for name, test := range map[string]struct {
		text           string
		progress, work float64
		fails          string
	}{
		"one job":                  {"[" + aJob(0, 10, 4, 0, "RUNNING") + "]", 0.4, 10, ""},
		"two jobs, newest first":   {"[" + running + "," + done + "]", 0.25, 40, ""},
		"skipped tasks":            {"[" + aJob(0, 10, 4, 2, "RUNNING") + "]", 0.5, 8, ""},
		"the driver works":         {"[" + done + "]", -1, 0, ""},
		"a job that failed":        {"[" + aJob(0, 10, 4, 0, "FAILED") + "," + aJob(1, 4, 0, 0, "RUNNING") + "]", 0.5, 8, ""},
		"nothing yet":              {"[]", -1, 0, ""},
		"null":                     {"null", -1, 0, ""},
		"no indices (Spark 2)":     {`[{"jobId":0,"status":"RUNNING","numTasks":4,"numCompletedTasks":1}]`, 0.25, 4, ""},
		"more done than tasks":     {`[{"jobId":0,"status":"RUNNING","numTasks":4,"numCompletedTasks":6}]`, 1, 6, ""},
		"forgotten":                {"[" + running + "]", 0, 0, "retainedJobs"},
		"twice":                    {"[" + done + "," + done + "]", 0, 0, "the same"},
		"without a number":         {`[{"status":"RUNNING"}]`, 0, 0, "without a number"},
		"below 0":                  {"[" + aJob(0, -1, 0, 0, "RUNNING") + "]", 0, 0, "out of range"},
		"huge":                     {`[{"jobId":0,"numTasks":99999999999}]`, 0, 0, "out of range"},
		"a page":                   {"<html>", 0, 0, "invalid character"},
		"not a list":               {`{"jobs":[]}`, 0, 0, "expected a list"},
		"cut off":                  {"[" + done, 0, 0, "EOF"},
		"a number instead of text": {`[{"jobId":0,"status":7}]`, 0, 0, "cannot unmarshal"},
	} {
		progress, work, err := parseSparkJobs(json.NewDecoder(strings.NewReader(test.text)))
		if progress != test.progress || work != test.work || (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: %v, %v, %v", name, progress, work, err)
		}
	}
	many := make([]string, maxJobs+1)
	for i := range many {
		many[i] = aJob(i, 1, 1, 0, "SUCCEEDED")
	}
	if _, _, err := parseSparkJobs(json.NewDecoder(strings.NewReader("[" + strings.Join(many, ",") + "]"))); err == nil || !strings.Contains(err.Error(), "more than 10000 jobs") {
		t.Error(err)
	}
}

func TestMapReduceJobs(t *testing.T) {
	for text, want := range map[string]string{
		`{"jobs":{"job":[{"id":"job_1_1","mapsTotal":8,"reducesTotal":2,"mapProgress":12.5}]}}`: "false",
		`{"jobs":{"job":[{"mapsTotal":8,"reducesTotal":0}]}}`:                                   "true",
		`{"jobs":{"job":[{"mapsTotal":0,"reducesTotal":0}]}}`:                                   "not known yet",
		`{"jobs":{}}`: "not known yet", `{}`: "not known yet",
		`{"jobs":{"job":[{"mapsTotal":-1}]}}`:                                                     "below 0",
		`{"jobs":{"job":[` + strings.Repeat(`{"mapsTotal":1},`, maxMRJobs) + `{"mapsTotal":1}]}}`: "more than 100 jobs",
		`[]`: "expected an object",
	} {
		mapOnly, err := parseMapReduceJobs(json.NewDecoder(strings.NewReader(text)))
		got := fmt.Sprint(mapOnly)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func FuzzRuns(f *testing.F) {
	f.Add([]byte("[" + aJob(0, 12, 8, 4, "SUCCEEDED") + "," + aJob(1, 32, 2, 0, "RUNNING") + "]"))
	f.Add([]byte(`{"jobs":{"job":[{"mapsTotal":8,"reducesTotal":2}]}}`))
	f.Add([]byte(`[{"jobId":0,"status":"RUNNING","numTasks":1e3}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		progress, work, err := parseSparkJobs(json.NewDecoder(strings.NewReader(string(text))))
		if !(progress >= 0 && progress <= 1 && work >= 0 || progress == -1 && work == 0) || err != nil && (progress != 0 || work != 0) {
			t.Fatal(progress, work, err)
		}
		if mapOnly, err := parseMapReduceJobs(json.NewDecoder(strings.NewReader(string(text)))); mapOnly && err != nil {
			t.Fatal(err)
		}
	})
}

// proxy is a ResourceManager with a proxy to the applications' own servers.
type proxy struct {
	*manager
	asked atomic.Int32
	mu    sync.Mutex
	serve http.HandlerFunc // of the applications' servers
}

func startProxy(t *testing.T, serve http.HandlerFunc, apps ...fakeApp) (*proxy, string) {
	p := &proxy{manager: &manager{}, serve: serve}
	p.set(nil, apps...)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/proxy/") {
			p.ServeHTTP(w, r)
			return
		}
		p.asked.Add(1)
		p.mu.Lock()
		serve := p.serve
		p.mu.Unlock()
		serve(w, r)
	}))
	t.Cleanup(s.Close)
	return p, s.URL
}

// polling lets a directory poll until the test ends.
func polling(t *testing.T, d *Directory) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx, func([]string) {}) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// reaches waits until a run is as wanted.
func reaches(t *testing.T, d *Directory, flow, what string, ok func(Run) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		r := d.RunOf(flow)
		if ok(r) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s: %+v", what, r)
		}
	}
}

// TestRunsThroughTheProxy: the progress of a Spark application and the phases of MapReduce jobs come from their own servers, through the
// ResourceManager's proxy, with the user's name of the address.
func TestRunsThroughTheProxy(t *testing.T) {
	p, address := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("user.name") != "penstock" {
			http.Error(w, "who?", http.StatusForbidden)
			return
		}
		switch r.URL.Path {
		case "/proxy/" + id(1) + "/api/v1/applications/" + id(1) + "/jobs":
			fmt.Fprint(w, "["+aJob(0, 10, 4, 0, "RUNNING")+"]")
		case "/proxy/" + id(2) + "/ws/v1/mapreduce/jobs":
			fmt.Fprint(w, `{"jobs":{"job":[{"mapsTotal":8,"reducesTotal":0}]}}`)
		default:
			t.Errorf("request for %s", r.URL.Path)
		}
	}, anApp(1, 5, with("applicationType", sparkType), with("progress", 10.0)), anApp(2, 6, with("progress", 30.0)), anApp(3, 7, with("applicationType", "TEZ"), with("progress", 20.0)),
		anApp(4, 8, with("state", "ACCEPTED"), with("applicationType", sparkType)))
	d, _ := directory(t, Options{ResourceManagers: []string{address + "?user.name=penstock"}})
	polling(t, d)
	reaches(t, d, id(1), "Spark", func(r Run) bool { return r.Progress == 0.4 && r.Work == 10 && r.Submitted == 5 })
	reaches(t, d, id(2), "maps only", func(r Run) bool { return r.Progress == 0.3 && r.Boundary == 0 })
	reaches(t, d, id(3), "Tez", func(r Run) bool { return r.Progress == 0.2 })
	reaches(t, d, id(4), "not running yet", func(r Run) bool { return r.Progress == -1 && r.Submitted == 8 })
	p.set(nil, anApp(1, 5, with("applicationType", sparkType), with("state", "FINISHED")))
	reaches(t, d, id(2), "ended", func(r Run) bool { return r.Ended })
	d.mu.Lock()
	left := d.followed[id(4)]
	d.mu.Unlock()
	if left != nil {
		t.Error("an application that is not running is asked")
	}
}

// TestBadServers: an application whose server answers with anything else has no progress, and is asked less and less often. It takes nothing
// from others.
func TestBadServers(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	for name, serve := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		},
		"a page":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>"+strings.Repeat("x", 100)) },
		"an error":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusInternalServerError) },
		"not found": http.NotFound,
		"too long": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `[{"name":"`+strings.Repeat("x", 2000)+`"}`)
		},
		"no end": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, address := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, id(2)) {
					fmt.Fprint(w, "["+aJob(0, 10, 4, 0, "RUNNING")+"]")
					return
				}
				serve(w, r)
			}, anApp(1, 5, with("applicationType", sparkType)), anApp(2, 5, with("applicationType", sparkType)))
			d, _ := directory(t, Options{ResourceManagers: []string{address}})
			y := d.sources[0].clusterManager.(*yarn)
			y.proxy.timeout, y.proxy.maxBody = 50*time.Millisecond, 1000
			if err := list(t, d); err != "" {
				t.Fatal(err)
			}
			d.RunOf(id(1))
			d.RunOf(id(2))
			polling(t, d)
			reaches(t, d, id(2), "the other", func(r Run) bool { return r.Progress == 0.4 })
			failed := func(n int) bool {
				d.mu.Lock()
				defer d.mu.Unlock()
				f := d.followed[id(1)]
				return f != nil && f.failures >= n && time.Until(f.due) > (askInterval<<(n-1))/2
			}
			reaches(t, d, id(1), "failure", func(r Run) bool { return r.Progress == -1 && failed(1) })
			d.mu.Lock()
			d.followed[id(1)].due = time.Time{}
			d.mu.Unlock()
			reaches(t, d, id(1), "again", func(r Run) bool { return r.Progress == -1 && failed(2) })
			if n := p.asked.Load(); n > 10 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestManyRuns: beyond the most applications, further ones are not asked.
func TestManyRuns(t *testing.T) {
	apps := make([]fakeApp, maxFollowed+10)
	for i := range apps {
		apps[i] = anApp(i, 5, with("applicationType", sparkType))
	}
	m := startManager(t)
	m.set(nil, apps...)
	d, _ := directory(t, Options{ResourceManagers: []string{m.URL}})
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	for _, a := range apps {
		if r := d.RunOf(a.id); r.Progress != -1 {
			t.Errorf("%+v", r)
		}
	}
	if len(d.followed) != maxFollowed {
		t.Errorf("%d are asked", len(d.followed))
	}
	for _, f := range d.followed { // nobody wants them any more
		f.wanted = f.wanted.Add(-2 * forgetAfter)
	}
	if flow, _ := d.nextFollowed(d.sources[0]); flow != "" || len(d.followed) != 0 {
		t.Errorf("%s is asked, %d are left", flow, len(d.followed))
	}
}

// TestStaleRuns: an answer does not count for longer than runStale.
func TestStaleRuns(t *testing.T) {
	_, address := startProxy(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "["+aJob(0, 10, 4, 0, "RUNNING")+"]") },
		anApp(1, 5, with("applicationType", sparkType)))
	d, _ := directory(t, Options{ResourceManagers: []string{address}})
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	d.RunOf(id(1))
	flow, a := d.nextFollowed(d.sources[0])
	got, err := d.sources[0].clusterManager.(*yarn).ask(t.Context(), &a)
	if err != nil || flow != id(1) {
		t.Fatal(flow, err)
	}
	d.noteAnswer(flow, got, nil)
	if r := d.RunOf(id(1)); r.Progress != 0.4 {
		t.Errorf("%+v", r)
	}
	d.followed[id(1)].answered = time.Now().Add(-2 * runStale)
	if r := d.RunOf(id(1)); r.Progress != -1 {
		t.Errorf("an old answer counts: %+v", r)
	}
}

// TestOutcome: whether an application has ended well, and when, is looked up when it is missing in a list, if somebody has asked for its run. One that was
// killed or failed has not ended well.
func TestOutcome(t *testing.T) {
	m := startManager(t)
	m.set(nil, anApp(1, 5), anApp(2, 5), anApp(3, 5), anApp(4, 5))
	d, _ := directory(t, Options{ResourceManagers: []string{m.URL}})
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	for i := range 3 {
		d.RunOf(id(1 + i))
	}
	ended := func(i int, state, final string) fakeApp {
		return anApp(i, 5, with("state", state), with("finalStatus", final), with("finishedTime", 1234))
	}
	m.set(nil, ended(1, "FINISHED", "SUCCEEDED"), ended(2, "FINISHED", "FAILED"), ended(3, "KILLED", "KILLED"), ended(4, "FINISHED", "SUCCEEDED"))
	s := d.sources[0]
	d.mu.Lock()
	s.settledAt = time.Time{}
	d.mu.Unlock()
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	if r := d.RunOf(id(1)); !r.Ended || r.Succeeded {
		t.Errorf("before the look-up: %+v", r)
	}
	for range 3 {
		d.lookUp(t.Context(), s)
	}
	for i, good := range map[int]bool{1: true, 2: false, 3: false} {
		if r := d.RunOf(id(i)); !r.Ended || r.Succeeded != good || r.Finished != 1234 {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if got := m.single.Load(); got != 3 {
		t.Errorf("%d look-ups, want 3", got)
	}
}
