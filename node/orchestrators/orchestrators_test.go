package orchestrators

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/node/monitor/owner"
	"penstock/wire/orchestrator"
)

// The answers in these tests have the documented form of the real ones (wire/orchestrator/testdata); no Kubernetes
// and no Mesos could be run.

const (
	spark     = "spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e"
	driver    = "3f2a91c4-0d5e-4c1b-9e77-8a6b5c4d3e2f"
	executor  = "11111111-0d5e-4c1b-9e77-8a6b5c4d3e2f"
	framework = "5b1c2d3e-1111-4222-8333-444455556666-0007"
)

// fake is a kubelet or an agent.
type fake struct {
	*httptest.Server
	asked atomic.Int32

	mu     sync.Mutex
	answer []byte
	code   int
}

func start(t *testing.T) *fake {
	f := &fake{code: http.StatusOK}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.asked.Add(1)
		f.mu.Lock()
		defer f.mu.Unlock()
		w.WriteHeader(f.code)
		_, _ = w.Write(f.answer)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) say(code int, answer []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.code, f.answer = code, answer
}

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../wire/orchestrator/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func directory(t *testing.T, o Options) (*Directory, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	return New(o), log
}

func pod(uid string) owner.Owner { return owner.Owner{Kind: owner.Kubernetes, Pod: uid, ID: "x"} }

// nothing is what a machine without processes in containers returns.
func nothing() map[string]owner.Owner { return nil }

func TestPods(t *testing.T) {
	kubelet := start(t)
	kubelet.say(http.StatusOK, recorded(t, "kubelet-pods.json"))
	d, log := directory(t, Options{Kubernetes: &Source{URL: kubelet.URL + "/pods", Period: time.Second, Resource: orchestrator.DefaultResource, Applications: []string{"analytics/*"}}})
	if c, k := d.Of(pod(driver)); k != Missing || c != (Container{}) {
		t.Errorf("before the first answer: %+v, %v", c, k)
	}
	d.sources[0].ask(t.Context(), d)
	for uid, want := range map[string]Container{
		driver:                                 {Application: spark, Flow: true, Title: "nightly-etl", Kind: "Spark", Name: "analytics/etl-7f3a91driver", Bandwidth: 5},
		executor:                               {Application: spark, Flow: true, Title: "nightly-etl", Kind: "Spark", Name: "analytics/nightly-etl-7f3a91-exec-1", Bandwidth: 60},
		"22222222-0d5e-4c1b-9e77-8a6b5c4d3e2f": {Application: "kubernetes:analytics/presto", Flow: true, Title: "presto", Kind: "Deployment", Name: "analytics/presto-5d9c7b8f6d-x2x4z", Bandwidth: 22},
		"33333333-0d5e-4c1b-9e77-8a6b5c4d3e2f": {Application: "kubernetes:hadoop/hdfs-datanode", Title: "hdfs-datanode", Kind: "DaemonSet", Name: "hadoop/hdfs-datanode-k5vqn"},
	} {
		if c, k := d.Of(pod(uid)); k != Known || c != want {
			t.Errorf("%s: %+v, %v", uid, c, k)
		}
	}
	// A Job's pod that has ended has no processes.
	if _, k := d.Of(pod("44444444-0d5e-4c1b-9e77-8a6b5c4d3e2f")); k != Missing {
		t.Errorf("a pod that has ended: %v", k)
	}
	o := pod(driver)
	o.Delegated = true
	if _, k := d.Of(o); k != NotAsked {
		t.Errorf("a name that proves nothing: %v", k)
	}
	if _, k := d.Of(owner.Owner{Kind: owner.Mesos, ID: driver}); k != NotAsked {
		t.Errorf("Mesos is not asked: %v", k)
	}
	for address, want := range map[string]string{"10.244.1.8": spark, "::ffff:10.244.1.8": spark, "fd00:10:244:1::7": spark, "10.244.1.9": "kubernetes:analytics/presto", "10.244.1.10": "", "192.0.2.11": "", "10.0.0.1": ""} {
		if c, ok := d.At(netip.MustParseAddr(address)); c.Application != want || ok != (want != "") {
			t.Errorf("%s: %+v", address, c)
		}
	}
	s := d.States()[0]
	if s.Error != "" || s.Containers != 5 || len(s.Applications) != 4 || s.Applications[0] != (Application{Name: spark, Title: "nightly-etl", Kind: "Spark", Flow: true, Containers: 2, Bandwidth: 65}) {
		t.Errorf("%+v", s)
	}
	if strings.Count(log.String(), "orchestrator answers") != 1 {
		t.Error(log)
	}
	// Only applications with flows of their own have weights.
	if r := d.Requested(); len(r) != 2 || r[spark] != 65 || r["kubernetes:analytics/presto"] != 22 {
		t.Errorf("%v", r)
	}
}

// Names of frameworks may contain slashes.
func TestPatterns(t *testing.T) {
	for pattern, names := range map[string]string{"*": "a b a/b", "a/*": "a/b", "a": "a"} {
		s := &Source{Applications: []string{"none", pattern}}
		for _, name := range []string{"a", "b", "a/b"} {
			if got := s.matches(name); got != strings.Contains(" "+names+" ", " "+name+" ") {
				t.Errorf("%s, %s: %v", pattern, name, got)
			}
		}
	}
}

// What uses the requests learns of changes, and of nothing else.
func TestChangesOfRequests(t *testing.T) {
	kubelet := start(t)
	changes := 0
	d, _ := directory(t, Options{Kubernetes: &Source{URL: kubelet.URL, Resource: orchestrator.DefaultResource}, Running: nothing, Changed: func() { changes++ }})
	for i, c := range []struct {
		answer string
		want   int
	}{
		{`{"kind":"PodList","items":[]}`, 1}, // nobody has requested anything before, either
		{string(recorded(t, "kubelet-pods.json")), 2}, {string(recorded(t, "kubelet-pods.json")), 2}, {"broken", 2},
		{strings.Replace(string(recorded(t, "kubelet-pods.json")), `"60"`, `"61"`, 1), 3}, {`{"kind":"PodList","items":[]}`, 4},
	} {
		kubelet.say(http.StatusOK, []byte(c.answer))
		d.sources[0].ask(t.Context(), d)
		if want := c.want - 1; changes != want {
			t.Errorf("answer %d: %d changes, want %d", i, changes, want)
		}
	}
}

func TestMesosContainers(t *testing.T) {
	agent := start(t)
	agent.say(http.StatusOK, recorded(t, "mesos-agent-state.json"))
	d, _ := directory(t, Options{Mesos: &Source{URL: agent.URL + "/state", Period: time.Second, Resource: orchestrator.DefaultScalar, Applications: []string{"Word*"}}})
	d.sources[0].ask(t.Context(), d)
	if c, k := d.Of(owner.Of("/mesos/" + driver)); k != Known || c != (Container{Application: framework, Flow: true, Title: "WordCount", Kind: "Framework", Name: "0", Bandwidth: 45, CPUs: 3, Memory: 2432}) {
		t.Errorf("%+v, %v", c, k)
	}
	if c, k := d.Of(owner.Of("/mesos/" + executor)); k != Known || c.Flow || c.Title != "TeraSort" {
		t.Errorf("%+v, %v", c, k)
	}
	if s := d.States()[0]; s.Offered != 200 || s.Containers != 2 || s.Applications[0].Memory != 2432 {
		t.Errorf("%+v", s)
	}
}

// While a server fails, its last answer counts, and it is asked less and less often.
func TestFailures(t *testing.T) {
	kubelet := start(t)
	kubelet.say(http.StatusOK, recorded(t, "kubelet-pods.json"))
	d, log := directory(t, Options{Kubernetes: &Source{URL: kubelet.URL, Period: 5 * time.Second}})
	s := d.sources[0]
	s.ask(t.Context(), d)
	for i, bad := range []struct {
		code   int
		answer string
		want   string
	}{
		{http.StatusUnauthorized, "", "give a file with a token"}, {http.StatusForbidden, "", "nodes/proxy"}, {http.StatusNotFound, "", "path of the URL"},
		{http.StatusInternalServerError, "", "500"}, {http.StatusOK, "{", "EOF"}, {http.StatusOK, `{"kind":"PodList","items":[],"metadata":{"continue":"x"}}`, "fieldSelector"},
	} {
		kubelet.say(bad.code, []byte(bad.answer))
		s.ask(t.Context(), d)
		if st := d.States()[0]; !strings.Contains(st.Error, bad.want) || st.Failures != i+1 || st.Answered.IsZero() {
			t.Errorf("%s: %+v", bad.want, st)
		}
		if want := min(5*time.Second<<(i+1), maxBackOff); s.pause() != want {
			t.Errorf("after %d failures: %v, want %v", i+1, s.pause(), want)
		}
		if c, k := d.Of(pod(driver)); k != Known || c.Application != spark {
			t.Errorf("%+v, %v", c, k)
		}
	}
	if n := strings.Count(log.String(), "does not answer"); n != 1 {
		t.Errorf("%d lines about failures:\n%s", n, log)
	}
	kubelet.say(http.StatusOK, []byte(`{"kind":"PodList","items":[]}`))
	s.ask(t.Context(), d)
	if s.pause() != 5*time.Second || d.States()[0].Error != "" || d.States()[0].Containers != 0 {
		t.Errorf("%+v", d.States()[0])
	}
	// The pods are gone. Their last I/O still has a name, but their addresses may belong to others by now.
	if c, k := d.Of(pod(driver)); k != Known || c.Application != spark {
		t.Errorf("%+v, %v", c, k)
	}
	if c, ok := d.At(netip.MustParseAddr("10.244.1.8")); ok {
		t.Errorf("%+v", c)
	}
	s.store(answer{}, nil, nil, time.Now().Add(keepFor-time.Second))
	if _, k := d.Of(pod(driver)); k != Known {
		t.Error("forgotten too early")
	}
	s.store(answer{}, nil, nil, time.Now().Add(keepFor+time.Second))
	if _, k := d.Of(pod(driver)); k != Missing {
		t.Error("not forgotten")
	}
	s.failures = 1 << 20
	if s.pause() != maxBackOff {
		t.Error(s.pause())
	}
}

// A kubelet that has just started answers before it knows all its pods. Those whose processes run keep their facts for
// a while.
func TestPartialAnswers(t *testing.T) {
	const period = 5 * time.Second
	d, _ := directory(t, Options{Kubernetes: &Source{Period: period, Resource: orchestrator.DefaultResource}})
	s, now := d.sources[0], time.Now()
	read := func(text []byte) answer {
		t.Helper()
		a, err := s.readPods(json.NewDecoder(bytes.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	all := func() answer { return read(recorded(t, "kubelet-pods.json")) }
	none := answer{containers: map[string]Container{}}
	driversAddress, executorsAddress := netip.MustParseAddr("10.244.1.7"), netip.MustParseAddr("10.244.1.8")
	check := func(when string, requested int64, absent int, driversIs, executorsIs bool) {
		t.Helper()
		if got := d.Requested()[spark]; got != requested {
			t.Errorf("%s: %d MB/s are requested, want %d", when, got, requested)
		}
		if st := d.States()[0]; st.Absent != absent {
			t.Errorf("%s: %d are absent, want %d", when, st.Absent, absent)
		}
		for address, want := range map[netip.Addr]bool{driversAddress: driversIs, executorsAddress: executorsIs} {
			if _, is := s.at(address, now); is != want {
				t.Errorf("%s: address %v: %v", when, address, is)
			}
		}
		if _, k := s.of(driver, now); k != Known {
			t.Errorf("%s: the driver's name is lost", when)
		}
	}
	both := map[string]bool{driver: true, executor: true}
	s.store(all(), nil, both, now)
	check("a full answer", 65, 0, true, true)
	now = now.Add(period)
	if _, changed, _ := s.store(none, nil, both, now); changed {
		t.Error("an answer without pods changes what they have requested")
	}
	check("an answer without pods", 65, 2, true, true)
	now = now.Add(period)
	s.store(none, nil, map[string]bool{driver: true}, now)
	check("the executor's processes have ended", 5, 1, true, false)
	s.store(none, nil, both, now)
	check("other processes in its cgroup", 5, 1, true, false)
	s.store(all(), nil, both, now)
	check("the full answer again", 65, 0, true, true)

	// The grace has an end, also if the processes run on.
	missing := now.Add(period)
	for now = missing; now.Sub(missing) <= absentFor; now = now.Add(period) {
		s.store(none, nil, both, now)
		check("within the grace", 65, 2, true, true)
	}
	s.store(none, nil, both, now)
	check("after the grace", 0, 0, false, false)

	// Another pod gets the address of one that is absent.
	s.store(all(), nil, both, now)
	now = now.Add(period)
	s.store(read([]byte(`{"kind":"PodList","items":[{"metadata":{"name":"n","namespace":"n","uid":"99999999-0d5e-4c1b-9e77-8a6b5c4d3e2f"},"status":{"podIP":"10.244.1.8"}}]}`)), nil, both, now)
	if c, ok := s.at(executorsAddress, now); !ok || c.Name != "n/n" {
		t.Errorf("%+v", c)
	}
	if c, ok := s.at(driversAddress, now); !ok || c.Application != spark {
		t.Errorf("%+v", c)
	}
	// A pod whose end is reported does not count, and neither does one whose UID several pods name.
	s.store(all(), nil, both, now)
	ended := read([]byte(`{"kind":"PodList","items":[{"metadata":{"name":"e","namespace":"n","uid":"` + executor + `"},"status":{"phase":"Failed"}}]}`))
	s.store(ended, nil, both, now)
	check("the executor has ended", 5, 1, true, false)
	s.store(all(), nil, both, now)
	twice := `{"metadata":{"name":"e","namespace":"n","uid":"` + executor + `"}}`
	s.store(read([]byte(`{"kind":"PodList","items":[`+twice+","+twice+`]}`)), nil, both, now)
	check("two pods with one UID", 5, 1, true, false)

	// If it is not known which processes run, addresses do not count, as other pods may have them.
	s.store(all(), nil, nil, now)
	s.store(none, nil, nil, now)
	if len(d.Requested()) != 1 || d.States()[0].Absent != 5 {
		t.Errorf("%v, %+v", d.Requested(), d.States()[0])
	}
	if c, ok := s.at(driversAddress, now); ok {
		t.Errorf("%+v", c)
	}
}

// Only containers of the orchestrator's kind count as running.
func TestKeysOfRunningContainers(t *testing.T) {
	running := map[string]owner.Owner{"/a": {Kind: owner.Kubernetes, Pod: "p", ID: "c"}, "/b": {Kind: owner.Mesos, ID: "m"}, "/c": {Kind: owner.Docker, ID: "d"}}
	for kind, want := range map[owner.Kind]string{owner.Kubernetes: "p", owner.Mesos: "m"} {
		if got := (&source{kind: kind}).keys(running); len(got) != 1 || !got[want] {
			t.Errorf("%s: %v", kind, got)
		}
	}
}

// A request that is not made because a file hangs is counted, and the last answer counts.
func TestSlowFiles(t *testing.T) {
	d, _ := directory(t, Options{Kubernetes: &Source{Period: time.Second}})
	s, now := d.sources[0], time.Now()
	s.store(answer{containers: map[string]Container{driver: {Application: spark}}}, nil, nil, now)
	for range 3 {
		s.store(answer{}, fmt.Errorf("token: %w", orchestrator.ErrSlowFile), nil, now)
	}
	s.store(answer{}, errors.New("401"), nil, now)
	if st := d.States()[0]; st.SlowFiles != 3 || st.Failures != 4 || st.Containers != 1 {
		t.Errorf("%+v", st)
	}
}

func TestLongAnswers(t *testing.T) {
	kubelet := start(t)
	list := func(pods int, padding int) []byte {
		var b bytes.Buffer
		b.WriteString(`{"kind":"PodList","items":[`)
		for i := range pods {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"metadata":{"name":"p%d","namespace":"n","uid":"%032x"}}`, i, i)
		}
		fmt.Fprintf(&b, `],"x":%q}`, strings.Repeat("x", padding))
		return b.Bytes()
	}
	d, _ := directory(t, Options{Kubernetes: &Source{URL: kubelet.URL, Period: time.Second}})
	for pods, leftOut := range map[int]int{MaxContainers: 0, MaxContainers + 3: 3} {
		kubelet.say(http.StatusOK, list(pods, 0))
		d.sources[0].ask(t.Context(), d)
		if s := d.States()[0]; s.Containers != MaxContainers || s.LeftOut != leftOut || s.Error != "" {
			t.Errorf("%d pods: %d, %d left out, %s", pods, s.Containers, s.LeftOut, s.Error)
		}
	}
	kubelet.say(http.StatusOK, list(1, maxBody))
	d.sources[0].ask(t.Context(), d)
	if s := d.States()[0]; !strings.Contains(s.Error, "too long") || s.Containers != MaxContainers {
		t.Errorf("%+v", s.Error)
	}
}

// Two pods that report one address: nobody knows whose it is.
func TestOneAddressOfTwoPods(t *testing.T) {
	text := `{"kind":"PodList","items":[`
	for i := range 3 {
		text += fmt.Sprintf(`{"metadata":{"name":"p%d","namespace":"n","uid":"%032x"},"status":{"podIP":"10.0.0.1"}},`, i, i)
	}
	s := &Source{}
	a, err := s.readPods(json.NewDecoder(strings.NewReader(strings.TrimSuffix(text, ",") + "]}")))
	if err != nil || len(a.containers) != 3 || a.addresses[netip.MustParseAddr("10.0.0.1")] != "" {
		t.Errorf("%+v, %v", a, err)
	}
}

// While a kubelet does not answer, other pods may get the addresses of its pods.
func TestOldAddresses(t *testing.T) {
	address := netip.MustParseAddr("10.244.1.8")
	for period, most := range map[time.Duration]time.Duration{time.Second: addressesFor, 15 * time.Second: addressesFor, 16 * time.Second: 32 * time.Second, 5 * time.Minute: 10 * time.Minute} {
		d, _ := directory(t, Options{Kubernetes: &Source{Period: period}})
		s, now := d.sources[0], time.Now()
		if _, ok := s.at(address, now); ok {
			t.Error("an address before the first answer")
		}
		a, err := s.readPods(json.NewDecoder(bytes.NewReader(recorded(t, "kubelet-pods.json"))))
		if err != nil {
			t.Fatal(err)
		}
		s.store(a, nil, nil, now)
		s.store(answer{}, errors.New("401"), nil, now.Add(time.Second))
		if c, ok := s.at(address, now.Add(most)); !ok || c.Application != spark {
			t.Errorf("%v after %v: %+v", period, most, c)
		}
		if c, ok := s.at(address, now.Add(most+1)); ok {
			t.Errorf("%v after more than %v: %+v", period, most, c)
		}
		if c, k := s.of(executor, now.Add(time.Hour)); k != Known || c.Application != spark {
			t.Errorf("a UID is never used again: %+v", c)
		}
	}
}

// A container that the orchestrator does not name, such as a pod that the URL's selector leaves out, does not cause
// requests again and again.
func TestContainersThatAreNeverReported(t *testing.T) {
	d, _ := directory(t, Options{Kubernetes: &Source{Period: time.Minute}})
	s, now := d.sources[0], time.Now()
	wakes := func() int { n := len(s.wake); clearWake(s); return n }
	of := func(uid string) { s.of(uid, now) }
	if of(driver); wakes() != 1 {
		t.Error("an unknown container causes no request")
	}
	for range 10 {
		now = now.Add(missedFor - 1)
		if of(driver); wakes() != 0 {
			t.Error("another request for the same container")
		}
	}
	if of(executor); wakes() != 1 {
		t.Error("another container causes no request")
	}
	now = now.Add(missedFor)
	if of(driver); wakes() != 1 {
		t.Error("a container that was not seen for a while causes no request")
	}
	for i := range 2*maxMissed + 1 {
		of(fmt.Sprintf("%032x", i))
	}
	if n := len(s.missed); n > maxMissed {
		t.Errorf("%d", n)
	}
}

func clearWake(s *source) {
	select {
	case <-s.wake:
	default:
	}
}

// Several pods that name one UID: nobody knows whose it is.
func TestOneUIDOfSeveralPods(t *testing.T) {
	for n, known := range map[int]bool{1: true, 2: false, 3: false} {
		text := `{"kind":"PodList","items":[{"metadata":{"name":"other","namespace":"n","uid":"` + driver + `"}}`
		for i := range n {
			text += fmt.Sprintf(`,{"metadata":{"name":"p%d","namespace":"n","uid":"11111111-0d5e-4c1b-9e77-8a6b5c4d3e2%x","annotations":{"kubernetes.io/config.mirror":"%032x"}}}`, i, i, 7)
		}
		a, err := (&Source{}).readPods(json.NewDecoder(strings.NewReader(text + "]}")))
		if _, is := a.containers[fmt.Sprintf("%032x", 7)]; err != nil || is != known || (a.skipped == 0) != known || a.containers[driver].Name != "n/other" {
			t.Errorf("%d pods: %+v, %v", n, a, err)
		}
	}
}

// A new container is asked for at once, and only once if the orchestrator does not know it.
func TestUnknownContainers(t *testing.T) {
	kubelet := start(t)
	kubelet.say(http.StatusOK, []byte(`{"kind":"PodList","items":[]}`))
	d, _ := directory(t, Options{Kubernetes: &Source{URL: kubelet.URL, Period: time.Hour}})
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()
	eventually(t, "the first request", func() bool { return !d.States()[0].Answered.IsZero() })
	kubelet.say(http.StatusOK, recorded(t, "kubelet-pods.json"))
	eventually(t, "the new pod", func() bool { _, k := d.Of(pod(driver)); return k == Known })
	asked := kubelet.asked.Load()
	if _, k := d.Of(pod("99999999-0d5e-4c1b-9e77-8a6b5c4d3e2f")); k != Missing {
		t.Error(k)
	}
	eventually(t, "one more request", func() bool { return kubelet.asked.Load() == asked+1 })
	cancel(errors.New("the test ends"))
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("Run does not end")
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come", what)
		}
	}
}

func TestNoDirectory(t *testing.T) {
	var d *Directory
	if _, k := d.Of(pod(driver)); k != NotAsked || d.Application(pod(driver)) != "" || d.States() != nil {
		t.Error("a nil directory knows something")
	}
	if _, ok := d.At(netip.MustParseAddr("10.0.0.1")); ok {
		t.Error("a nil directory knows an address")
	}
}
