package applications

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/broker/kerberos"
	"penstock/core/policy"
)

// manager implements the part of a ResourceManager's REST interface that yarn uses. Applications
// come in random order, as from a hash table, and a limit cuts the list off.
type manager struct {
	*httptest.Server
	lists  atomic.Int32
	single atomic.Int32

	mu    sync.Mutex
	apps  []fakeApp
	other http.HandlerFunc // answers instead
}

// fakeApp is an application with its JSON.
type fakeApp struct {
	id, state string
	started   int64
	text      []byte
}

func startManager(t *testing.T) *manager {
	m := &manager{}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *manager) set(other http.HandlerFunc, apps ...fakeApp) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.other, m.apps = other, apps
}

func (m *manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	other, apps := m.other, m.apps
	m.mu.Unlock()
	if other != nil {
		other(w, r)
		return
	}
	if id, single := strings.CutPrefix(r.URL.Path, "/ws/v1/cluster/apps/"); single {
		m.single.Add(1)
		for _, a := range apps {
			if a.id == id {
				fmt.Fprintf(w, `{"app":%s}`, a.text)
				return
			}
		}
		http.Error(w, `{"RemoteException":{"exception":"NotFoundException"}}`, http.StatusNotFound)
		return
	}
	if r.URL.Path != "/ws/v1/cluster/apps" {
		http.NotFound(w, r)
		return
	}
	m.lists.Add(1)
	query := r.URL.Query()
	number := func(name string) int64 {
		n, err := strconv.ParseInt(query.Get(name), 10, 64)
		if err != nil || n < 0 {
			http.Error(w, name+" value must be a number!", http.StatusBadRequest)
		}
		return n
	}
	begin, end, limit := number("startedTimeBegin"), number("startedTimeEnd"), number("limit")
	states := strings.Split(query.Get("states"), ",")
	fmt.Fprint(w, `{"apps":{"app":[`)
	comma := ""
	for _, a := range apps {
		if a.started < begin || a.started > end || !slices.Contains(states, a.state) {
			continue
		}
		if limit--; limit < 0 {
			break
		}
		if _, err := fmt.Fprintf(w, "%s%s", comma, a.text); err != nil {
			return
		}
		comma = ","
	}
	fmt.Fprint(w, "]}}")
}

func id(i int) string { return fmt.Sprintf("application_1700000000000_%04d", i) }

func anApp(i int, started int64, changes ...func(map[string]any)) fakeApp {
	doc := map[string]any{"id": id(i), "user": fmt.Sprintf("user%d", i%100), "name": fmt.Sprintf("nightly load of table %d", i),
		"queue": "root.etl.night", "state": "RUNNING", "finalStatus": "UNDEFINED", "applicationType": "MAPREDUCE",
		"applicationTags": "gold,io.weight=4", "startedTime": started, "clusterId": 1700000000000, "diagnostics": "", "resourceInfo": holds(60, "M")}
	for _, change := range changes {
		change(doc)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return fakeApp{id: id(i), state: doc["state"].(string), started: started, text: text}
}

// with changes a member of an application.
func with(member string, value any) func(map[string]any) {
	return func(doc map[string]any) { doc[member] = value }
}

func holds(value int64, units string) map[string]any {
	information := []map[string]any{{"name": "memory-mb", "units": "Mi", "value": 1024}, {"name": DefaultResource, "units": units, "value": value, "attributes": map[string]any{}}}
	return map[string]any{"resourceUsagesByPartition": []map[string]any{{"partitionName": "", "used": map[string]any{
		"memory": 1024, "vCores": 1, "resourceInformations": map[string]any{"resourceInformation": information}}}}}
}

// directory returns a directory that polls its servers much more often than usual.
func directory(t *testing.T, o Options) (*Directory, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	d.tick, d.period = 5*time.Millisecond, 10*time.Millisecond
	return d, &log
}

func managers(d *Directory) *servers { return d.sources[0].clusterManager.(*yarn).servers }

// list makes the first source request a list, and returns the error's text.
func list(t *testing.T, d *Directory) string {
	t.Helper()
	d.list(t.Context(), d.sources[0])
	return d.Sources()[0].Error
}

func TestFactsOfYARN(t *testing.T) {
	m := startManager(t)
	m.set(nil, anApp(1, 5))
	d, _ := directory(t, Options{ResourceManagers: []string{m.URL + "?user.name=penstock"}})
	if f := d.Facts(id(1)); f.Flow != id(1) || f.User != "" {
		t.Errorf("before anything is known: %+v", f)
	}
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	want := policy.Facts{Flow: id(1), Queue: "root.etl.night", User: "user1", Name: "nightly load of table 1", Type: "MAPREDUCE",
		Tags: []string{"gold", "io.weight=4"}, Bandwidth: 60}
	if f := d.Facts(id(1)); !same(f, want) {
		t.Errorf("%+v, want %+v", f, want)
	}
	if d.State(id(1)) != "RUNNING" || d.State(id(2)) != "" {
		t.Errorf("states %q and %q", d.State(id(1)), d.State(id(2)))
	}
	if all := d.List(); len(all) != 1 || all[0].State != "RUNNING" || all[0].Ended {
		t.Errorf("%+v", all)
	}
	s := d.Sources()[0]
	if s.Name != "YARN" || !strings.HasPrefix(s.Address, m.URL) || s.Applications != 1 || s.Answered.IsZero() {
		t.Errorf("%+v", s)
	}
}

// TestHundredThousand: the largest number of applications is read in pages, and one more is an
// error, also if submission times are hidden or all equal.
func TestHundredThousand(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	m := startManager(t)
	apps := make([]fakeApp, 0, MaxApplications)
	for i := range MaxApplications {
		at := 1700000000000 + random.Int64N(1e9)
		if i%10 == 0 {
			at = 1700000000000 + int64(i/1000)*1000 // a hundred at the same moment
		}
		apps = append(apps, anApp(i, at))
	}
	m.set(nil, apps...)
	d, _ := directory(t, Options{ResourceManagers: []string{m.URL}})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	took := time.Since(begin)
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d applications in %d answers, %.1f s, %d MiB", len(d.apps), m.lists.Load(), took.Seconds(), grown>>20)
	if len(d.apps) != MaxApplications || m.lists.Load() > maxPages {
		t.Errorf("%d applications in %d answers", len(d.apps), m.lists.Load())
	}
	if grown > 150<<20 {
		t.Errorf("they take %d bytes", grown)
	}
	// One more application, and then only that one. It is added without a server, for speed.
	more := &fakeSource{}
	for i := range MaxApplications + 1 {
		more.apps = append(more.apps, Application{Facts: policy.Facts{Flow: id(i), User: "u"}})
	}
	d.sources[0].clusterManager = more
	if err := list(t, d); !strings.Contains(err, "1 applications at work are known by their flows' names only: at most 100000") {
		t.Errorf("one more: %q", err)
	}
	if len(d.apps) != MaxApplications || d.Facts(id(MaxApplications)).User != "" {
		t.Errorf("%d are kept", len(d.apps))
	}
	more.apps = more.apps[MaxApplications:]
	list(t, d) // a list without the others, which are dropped at the next lists
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	if f := d.Facts(id(MaxApplications)); f.User == "" {
		t.Error("there was room, but the application is not known")
	}
}

func TestPages(t *testing.T) {
	for name, test := range map[string]struct {
		hidden bool
		at     func(i int) int64
		want   string
	}{
		"spread":               {false, func(i int) int64 { return int64(1e12) + int64(i)*1000 }, ""},
		"hidden start times":   {true, func(i int) int64 { return int64(1e12) + int64(i)*1000 }, ""},
		"all of one moment":    {false, func(int) int64 { return 1e12 }, ""},
		"two moments, far off": {false, func(i int) int64 { return int64(1+i%2) * 1e12 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := startManager(t)
			var apps []fakeApp
			for i := range 500 {
				a := anApp(i, test.at(i))
				if test.hidden {
					a = anApp(i, test.at(i), with("startedTime", 0))
					a.started = test.at(i)
				}
				apps = append(apps, a)
			}
			m.set(nil, apps...)
			d, _ := directory(t, Options{ResourceManagers: []string{m.URL}})
			d.sources[0].clusterManager.(*yarn).pageSize = 20
			if err := list(t, d); err != test.want {
				t.Error(err)
			}
			if len(d.apps) != len(apps) {
				t.Errorf("%d of %d applications in %d answers", len(d.apps), len(apps), m.lists.Load())
			}
		})
	}
}

// TestPagesEnd: a server that always returns full pages is not read forever.
func TestPagesEnd(t *testing.T) {
	m := startManager(t)
	m.set(func(w http.ResponseWriter, r *http.Request) {
		m.lists.Add(1)
		begin, _ := strconv.ParseInt(r.URL.Query().Get("startedTimeBegin"), 10, 64)
		fmt.Fprintf(w, `{"apps":{"app":[%s,%s]}}`, anApp(1, begin).text, anApp(2, begin+1).text)
	})
	d, _ := directory(t, Options{ResourceManagers: []string{m.URL}})
	d.sources[0].clusterManager.(*yarn).pageSize = 2
	if err := list(t, d); !strings.Contains(err, "more than 100000 applications at work") || m.lists.Load() != maxPages {
		t.Errorf("%s, after %d answers", err, m.lists.Load())
	}
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if to != "" {
			w.Header().Set("Location", to+r.URL.Path)
		}
		w.WriteHeader(http.StatusTemporaryRedirect)
		fmt.Fprintln(w, "This is standby RM. The redirect url is: "+r.URL.Path)
	}
}

// TestStandby: the active server of a pair is found, even after a fail-over. Servers that are not
// configured never receive a request.
func TestStandby(t *testing.T) {
	a, b, stranger := startManager(t), startManager(t), startManager(t)
	stranger.set(nil, anApp(9, 1))
	a.set(redirect(b.URL))
	b.set(nil, anApp(1, 1))
	d, _ := directory(t, Options{ResourceManagers: []string{a.URL, b.URL}})
	if err := list(t, d); err != "" || d.Sources()[0].Address != b.URL || d.Facts(id(1)).User == "" {
		t.Errorf("%s: %+v", err, d.Sources())
	}
	a.set(nil, anApp(2, 1))
	b.set(redirect(a.URL))
	if err := list(t, d); err != "" || d.Sources()[0].Address != a.URL || d.Facts(id(2)).User == "" {
		t.Errorf("%s: %+v", err, d.Sources())
	}
	a.set(redirect(stranger.URL))
	b.set(redirect(""))
	err := list(t, d)
	if to, _ := url.Parse(stranger.URL); !strings.Contains(err, "names \""+to.Host+"\" as active, which is not among the addresses") || !strings.Contains(err, "knows no active server") {
		t.Error(err)
	}
	if stranger.lists.Load() != 0 || d.Facts(id(9)).User != "" {
		t.Error("a server that is not configured was queried")
	}
}

// TestStandbyHasNoRest: a slow standby is polled as often as a fast one. Busy time
// is only the time of servers that answered as active, or that may have worked on the request.
func TestStandbyHasNoRest(t *testing.T) {
	const slow = 500 * time.Millisecond
	late := func(then http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(slow)
			then(w, r)
		}
	}
	nobody := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	answer := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"apps":null}`) }
	for name, test := range map[string]struct {
		a, b http.HandlerFunc
		busy bool
		none bool // no server is active
	}{
		"standbys":                         {late(redirect("")), late(redirect("")), false, true},
		"a standby and a broken one":       {redirect(""), late(nobody), true, false},
		"a slow standby and an active one": {late(redirect("")), answer, false, false},
		"a slow active one":                {redirect(""), late(answer), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, gone := startManager(t), startManager(t), startManager(t)
			gone.Close()
			a.set(test.a)
			b.set(test.b)
			d, _ := directory(t, Options{ResourceManagers: []string{gone.URL, a.URL, b.URL}})
			err := list(t, d)
			if spent := managers(d).takeBusyTime(); spent >= slow != test.busy {
				t.Errorf("kept busy for %v (%s)", spent, err)
			}
			if errors.Is(d.lastError(d.sources[0]), errNoneActive) != test.none {
				t.Errorf("whether one is active: %s", err)
			}
		})
	}
}

// TestMachineGone: an address that accepts no connection is abandoned earlier than a slow answer.
func TestMachineGone(t *testing.T) {
	// A listener with a full queue drops further connection requests.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
	for full := false; !full; {
		conn, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if full = err != nil; !full {
			t.Cleanup(func() { conn.Close() })
		}
	}
	m := startManager(t)
	m.set(nil, anApp(1, 1))
	d, _ := directory(t, Options{ResourceManagers: []string{"http://" + address, m.URL}, Hadoop: kerberos.Access{Connect: 100 * time.Millisecond}})
	if err := list(t, d); err != "" || d.Facts(id(1)).User == "" || d.Sources()[0].Address != m.URL {
		t.Errorf("%s: %+v", err, d.Sources())
	}
	m.set(redirect(""))
	managers(d).takeBusyTime()
	if err := list(t, d); !strings.Contains(err, "i/o timeout") || managers(d).takeBusyTime() != 0 {
		t.Errorf("with a standby only: %s", err)
	}
}

// TestRecovered: a new active server that does not know any containers yet, as in 3.4.2, does not
// lower allocations.
func TestRecovered(t *testing.T) {
	m := startManager(t)
	m.set(nil, anApp(1, 5))
	d, _ := directory(t, Options{ResourceManagers: []string{m.URL}})
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	before := d.Facts(id(1))
	m.set(nil, anApp(1, 5, with("state", "ACCEPTED"), with("clusterId", 1700000001000), with("resourceInfo", holds(0, "M")),
		with("diagnostics", "Attempt recovered after RM restart")))
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	if f := d.Facts(id(1)); !same(f, before) || d.State(id(1)) != "ACCEPTED" {
		t.Errorf("%+v, before %+v", f, before)
	}
}

// TestBadAnswers: with any answer of a server, the known facts stay, the error describes the
// problem, and it is logged once.
func TestBadAnswers(t *testing.T) {
	const head = `{"apps":{"app":[`
	app := anApp(1, 1).text
	endless := func(begin, piece string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, err := fmt.Fprint(w, head+begin)
			for err == nil {
				_, err = fmt.Fprint(w, piece)
			}
		}
	}
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, s) }
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a page":               {text("<html>There is no active RM right now.</html>"), "invalid character '<'"},
		"half of it":           {text(head + string(app)), "EOF"},
		"another document":     {text(`{"clusterInfo":{"id":1}}`), "no list of applications"},
		"a list":               {text(`[1]`), "expected an object"},
		"a number":             {text(`{"apps":{"app":7}}`), "expected a list"},
		"wrong types":          {text(head + `{"id":7}]}}`), "cannot unmarshal number"},
		"an error":             {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }, "500 Internal"},
		"wants a ticket":       {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) }, "Kerberos"},
		"endless applications": {endless("", string(app)+","), "more than the requested 1000 applications"},
		"an endless name":      {endless(`{"name":"`, strings.Repeat("a", 1<<20)), "over 4194304 bytes"},
		"an endless element":   {endless("", strings.Repeat("[", 1000)), "exceeded max depth"},
		"a slow body": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, head)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "took more than 300ms"},
		"a closed connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			m := startManager(t)
			m.set(nil, anApp(1, 1))
			d, log := directory(t, Options{ResourceManagers: []string{m.URL}})
			if err := list(t, d); err != "" {
				t.Fatal(err)
			}
			managers(d).maxBody = 4 << 20
			if strings.HasPrefix(name, "a slow") {
				managers(d).timeout = 300 * time.Millisecond
			}
			m.set(test.answer)
			for range 3 {
				if err := list(t, d); !strings.Contains(err, test.want) {
					t.Errorf("%s, want %s", err, test.want)
				}
			}
			if f := d.Facts(id(1)); f.User != "user1" || f.Bandwidth != 60 {
				t.Errorf("the known facts are now %+v", f)
			}
			if n := strings.Count(log.String(), "source fails"); n != 1 {
				t.Errorf("logged %d times: %s", n, log)
			}
			m.set(nil, anApp(1, 1))
			if err := list(t, d); err != "" {
				t.Errorf("when it is back: %s", err)
			}
		})
	}
}

// TestNumbers: names that are not application ids of Hadoop are not looked up.
func TestNumbers(t *testing.T) {
	for flow, want := range map[string]bool{
		"application_1700000000000_0001":        true,
		"application_1700000000000_10000":       true,
		"application_1700000000000_2147483647":  true,
		"application_1700000000000_2147483648":  false,
		"application_1700000000000_9999999999":  false,
		"application_1700000000000_0000":        true,
		"application_1700000000000_00001":       false,
		"application_1700000000000_0000000001":  false,
		"application_1700000000000_001":         false,
		"application_1700000000000_+001":        false,
		"application_170000000000_0001":         false,
		"application_1700000000000_10000000000": false,
	} {
		if got := (*yarn)(nil).owns(flow); got != want {
			t.Errorf("%s: %v", flow, got)
		}
	}
}

// TestBadName: a name that the ResourceManager refuses does not keep others from being looked up,
// and is logged once.
func TestBadName(t *testing.T) {
	m := startManager(t)
	m.set(func(w http.ResponseWriter, r *http.Request) {
		switch one, single := strings.CutPrefix(r.URL.Path, "/ws/v1/cluster/apps/"); {
		case !single:
			fmt.Fprint(w, `{"apps":null}`)
		case one == id(7):
			fmt.Fprintf(w, `{"app":%s}`, anApp(7, 1).text)
		default:
			http.Error(w, "For input string", http.StatusBadRequest)
		}
	})
	d, log := directory(t, Options{ResourceManagers: []string{m.URL}})
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	for _, flow := range []string{id(5), id(6), id(7)} {
		d.Facts(flow)
	}
	changed := d.lookUp(t.Context(), d.sources[0])
	if !slices.Equal(changed, []string{id(7)}) || d.Sources()[0].Error != "" || len(d.pending) != 0 {
		t.Errorf("changed: %v; %+v; %d are wanted still", changed, d.Sources()[0], len(d.pending))
	}
	if n := strings.Count(log.String(), "refuses an application's name"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
}

// TestLookUp: an application at work that is in no list is looked up, at a limited rate. An unknown
// one is looked up only once.
func TestLookUp(t *testing.T) {
	m := startManager(t)
	m.set(nil, anApp(7, 1, with("state", "FINISHED")))
	d, _ := directory(t, Options{ResourceManagers: []string{m.URL}})
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	for _, flow := range []string{id(7), id(8), "clients", "app-20240101000000-0001", "application_1_1"} {
		d.Facts(flow)
	}
	if changed := d.lookUp(t.Context(), d.sources[0]); len(changed) != 1 || changed[0] != id(7) || m.single.Load() != 2 {
		t.Errorf("changed: %v, after %d look-ups", changed, m.single.Load())
	}
	if f := d.Facts(id(7)); f.Queue != "root.etl.night" || f.Bandwidth != 0 {
		t.Errorf("%+v", f)
	}
	for i := range 2 * maxPending {
		d.Facts(id(100 + i))
	}
	if len(d.pending) != maxPending {
		t.Errorf("%d are wanted", len(d.pending))
	}
	m.single.Store(0)
	d.lookUp(t.Context(), d.sources[0])
	if n := m.single.Load(); n != lookupsPerSecond {
		t.Errorf("%d look-ups at once, want at most %d", n, lookupsPerSecond)
	}
}

// TestChangesAreTold: Run reports first facts, changed facts, and allocations that end.
func TestChangesAreTold(t *testing.T) {
	m := startManager(t)
	d, _ := directory(t, Options{ResourceManagers: []string{m.URL}})
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan []string, 100)
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx, func(flows []string) { changes <- flows }) })
	defer running.Wait()
	defer cancel()
	until := func(what string, holds func(policy.Facts) bool) {
		t.Helper()
		deadline := time.After(30 * time.Second)
		for {
			select {
			case flows := <-changes:
				for _, f := range flows {
					if f == id(1) && holds(d.Facts(id(1))) {
						return
					}
				}
			case <-deadline:
				t.Fatalf("not reported within 30 s: %s", what)
			}
		}
	}
	m.set(nil, anApp(1, 1, with("resourceInfo", nil)))
	until("it is there", func(f policy.Facts) bool { return f.User == "user1" && f.Bandwidth == 0 })
	m.set(nil, anApp(1, 1))
	until("it holds something", func(f policy.Facts) bool { return f.Bandwidth == 60 })
	m.set(nil)
	until("it is gone", func(f policy.Facts) bool { return f.Bandwidth == 0 && f.User == "user1" })
}

func TestLeafQueues(t *testing.T) {
	m := startManager(t)
	looks := atomic.Int32{}
	plain := &manager{apps: []fakeApp{anApp(1, 1, with("queue", "night")), anApp(2, 1, with("queue", "same")), anApp(3, 1, with("queue", "nowhere"))}}
	m.set(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws/v1/cluster/scheduler" {
			plain.ServeHTTP(w, r)
			return
		}
		looks.Add(1)
		fmt.Fprint(w, `{"scheduler":{"schedulerInfo":{"type":"capacityScheduler","queueName":"root","queues":{"queue":[
			{"queueName":"etl","queues":{"queue":[{"queueName":"night","queues":null},{"queueName":"same"}]}},{"queueName":"same"}]}}}}`)
	})
	d, _ := directory(t, Options{ResourceManagers: []string{m.URL}})
	for range 3 {
		if err := list(t, d); err != "" {
			t.Fatal(err)
		}
	}
	for i, want := range map[int]string{1: "root.etl.night", 2: "same", 3: "nowhere"} {
		if f := d.Facts(id(i)); f.Queue != want {
			t.Errorf("queue %q, want %q", f.Queue, want)
		}
	}
	if looks.Load() != 1 {
		t.Errorf("%d looks at the queues", looks.Load())
	}
}

func TestAmounts(t *testing.T) {
	for text, want := range map[string]int64{
		"60 M": 60, "6 G": 6000, "64 Mi": 67, "100": 1, "0 M": 0, "-5 M": 0, "9223372036854775807 P": policy.MaxWeight,
		"5 furlongs": 0, "60000 k": 60, "1 p": 1, "1 Ti": policy.MaxWeight,
	} {
		value, units, _ := strings.Cut(text, " ")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(map[string]any{"app": map[string]any{"id": id(1), "resourceInfo": holds(n, units)}})
		if err != nil {
			t.Fatal(err)
		}
		a, err := parseApp(json.NewDecoder(bytes.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		if got := a.application(DefaultResource).Bandwidth; got != want {
			t.Errorf("%s: %d MB/s, want %d", text, got, want)
		}
	}
}

func TestLongStrings(t *testing.T) {
	long := strings.Repeat("ä", 5000)
	a := (&yarnApp{ID: id(1), Name: long, User: long, ApplicationTags: "gold,," + long + ",late"}).application(DefaultResource)
	if len(a.Name) > maxName || len(a.User) > maxName || len(a.Tags) != 1 || a.Tags[0] != "gold" {
		t.Errorf("%d %d %q", len(a.Name), len(a.User), a.Tags)
	}
}

func TestAddresses(t *testing.T) {
	for _, bad := range []string{"", "rm:8088", "ftp://rm", "http://", "http://user:secret@rm:8088", "http://rm#x", "://"} {
		if _, err := New(Options{ResourceManagers: []string{bad}}); err == nil {
			t.Errorf("%q is accepted as an address", bad)
		}
		if _, err := New(Options{SparkMasters: []string{bad}}); err == nil {
			t.Errorf("%q is accepted as an address", bad)
		}
	}
	if _, err := New(Options{ResourceManagers: make([]string, maxServers+1)}); err == nil || !strings.Contains(err.Error(), "at most 16") {
		t.Error(err)
	}
}

func FuzzYARN(f *testing.F) {
	app := anApp(1, 1).text
	f.Add([]byte(`{"apps":{"app":[` + string(app) + `]}}`))
	f.Add([]byte(`{"apps":null}`))
	f.Add([]byte(`{"app":` + string(app) + `}`))
	f.Add([]byte(`{"apps":"","app":{}}`))
	f.Add([]byte(`{"scheduler":{"schedulerInfo":{"queueName":"root","queues":{"queue":[{"queueName":"a"},{"queueName":"a"}]}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		check := func(a *yarnApp) error {
			app := a.application(DefaultResource)
			size := len(app.Queue) + len(app.User) + len(app.Name) + len(app.Type) + len(app.State)
			for _, tag := range app.Tags {
				size += len(tag)
			}
			if size > 5*maxName+maxTags || app.Bandwidth < 0 || app.Bandwidth > policy.MaxWeight {
				t.Fatalf("%+v", app)
			}
			return nil
		}
		_ = parseApps(json.NewDecoder(bytes.NewReader(text)), check)
		if a, err := parseApp(json.NewDecoder(bytes.NewReader(text))); err == nil && a != nil {
			_ = check(a)
		}
		paths, err := parseQueues(json.NewDecoder(bytes.NewReader(text)))
		for name, path := range paths {
			if err != nil || path != "" && path != name && !strings.HasSuffix(path, "."+name) {
				t.Fatalf("%q is at %q: %v", name, path, err)
			}
		}
	})
}

// TestPause: a source that answers at once is polled at each tick, and a slow one and one that fails are spared.
func TestPause(t *testing.T) {
	failed := errors.New("the answer has no list")
	for busy, want := range map[time.Duration]time.Duration{
		0: 0, 10 * time.Millisecond: 500 * time.Millisecond, 100 * time.Millisecond: period, time.Second: period, 2 * time.Second: 8 * time.Second,
	} {
		if got := pause(busy, period, nil); got != want {
			t.Errorf("busy for %v: a pause of %v, want %v", busy, got, want)
		}
		if got := pause(busy, period, failed); got != max(want, period) {
			t.Errorf("busy for %v, with an error: a pause of %v, want %v", busy, got, max(want, period))
		}
		if got := pause(busy, period, fmt.Errorf("%w: all are standbys", errNoneActive)); got != 0 {
			t.Errorf("busy for %v, and no server is active: a pause of %v", busy, got)
		}
	}
}
