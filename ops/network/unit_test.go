package network

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

func TestFind(t *testing.T) {
	found, err := Find([]string{BridgeNAT, Host})
	if err != nil || len(found) != 2 || found[0].Name != Host || found[1].Name != BridgeNAT {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := Find([]string{"bridge", "bridges"}); err == nil || !strings.Contains(err.Error(), `"bridges"`) {
		t.Error(err)
	}
}

// The rules of the last pair are within the ports and addresses.
func TestRules(t *testing.T) {
	nat := SetUps()[3]
	rules := nat.rules(MaxPairs)
	for _, want := range []string{
		"-A DOCKER -p tcp -m tcp --dport 20000 -j DNAT --to-destination 198.18.1.1:7000\n",
		"-A DOCKER -p udp -m udp --dport 20255 -j DNAT --to-destination 198.18.1.128:7255\n",
		"-A POSTROUTING -s 198.18.0.0/16 ! -o bridge -j MASQUERADE\n",
		"-A POSTROUTING -s 198.18.1.1/32 -d 198.18.1.1/32 -p tcp -m tcp --dport 7000 -j MASQUERADE\n",
		"-A DOCKER -d 198.18.1.1/32 ! -i bridge -o bridge -p tcp -m tcp --dport 7000 -j ACCEPT\n",
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("no %q", want)
		}
	}
	if to := nat.connectTo(MaxPairs-1, portsPerPair-1); !strings.HasSuffix(to.String(), ":20255") || to.Addr() != bridgeAddress {
		t.Error(to)
	}
	if to := SetUps()[2].connectTo(1, 0); to.String() != "198.18.1.2:7002" {
		t.Error(to)
	}
	if to := SetUps()[0].connectTo(1, 1); to.String() != "127.0.0.1:7003" {
		t.Error(to)
	}
}

func TestSetup(t *testing.T) {
	if err := DefaultSetup().Validate(); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Setup){
		"no pairs": func(s *Setup) { s.Pairs = nil }, "0 pairs": func(s *Setup) { s.Pairs = []int{1, 0} }, "many pairs": func(s *Setup) { s.Pairs = []int{MaxPairs + 1} },
		"a CPU that is not there": func(s *Setup) { s.CPU = -1 }, "a short request": func(s *Setup) { s.RequestBytes = minTripBytes - 1 },
		"a long answer": func(s *Setup) { s.AnswerBytes = maxTripBytes + 1 }, "no writes": func(s *Setup) { s.WriteBytes = 0 }, "long writes": func(s *Setup) { s.WriteBytes = maxWriteBytes + 1 },
		"no time": func(s *Setup) { s.MeasuredS = 0.09 }, "a long time": func(s *Setup) { s.MeasuredS = 601 }, "a negative warm-up": func(s *Setup) { s.WarmUpS = -1 },
		"no operations": func(s *Setup) { s.OperationsPerMinute = 0 }, "long operations": func(s *Setup) { s.OperationBytes = maxTextBytes + 1 },
	} {
		s := DefaultSetup()
		if change(&s); s.Validate() == nil {
			t.Errorf("%s: no error", what)
		}
	}
	edge := DefaultSetup()
	edge.Pairs, edge.RequestBytes, edge.AnswerBytes, edge.WriteBytes, edge.MeasuredS, edge.WarmUpS = []int{1, MaxPairs}, minTripBytes, maxTripBytes, maxWriteBytes, minMeasuredS, 0
	if err := edge.Validate(); err != nil {
		t.Error(err)
	}
}

// An operation counts every word of its text once.
func TestOperation(t *testing.T) {
	o := newOperation(4096, 1)
	words := 0
	for _, p := range o.parts {
		words += len(strings.Fields(string(p)))
	}
	for times := 1; times <= 2; times++ {
		o.do()
		sum := 0
		for _, n := range o.total {
			sum += n
		}
		if sum != times*words {
			t.Errorf("%d words were counted, after %d operations of %d", sum, times, words)
		}
	}
	if n := testing.AllocsPerRun(10, o.do); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestOperationsAreInTheWindow(t *testing.T) {
	start := time.Now()
	w := window{start: start.Add(50 * time.Millisecond), end: start.Add(200 * time.Millisecond)}
	total := 0
	done := operate(newOperation(1, 1), 60_000, w, func() bool {
		total++
		return !time.Now().Before(w.end.Add(100 * time.Millisecond))
	})
	if done < 1 || done > 210 { // late ones from before the window may end in it
		t.Errorf("%d operations of about 150 in the window", done)
	}
}

func TestLook(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	own := []thread{{os.Getpid(), unix.Gettid()}}
	before, err := look(proc, own)
	if err != nil {
		t.Fatal(err)
	}
	const switches = 5
	for range switches {
		pause := unix.NsecToTimespec(1e6)
		unix.Nanosleep(&pause, nil)
	}
	for begun := time.Now(); time.Since(begun) < 30*time.Millisecond; {
	}
	after, err := look(proc, own)
	if err != nil {
		t.Fatal(err)
	}
	if d := after.sub(before); d.switches < switches || d.run <= 0 || d.delay < 0 || d.machine < 0 {
		t.Errorf("%+v", d)
	}
	if _, err := look(proc, []thread{{os.Getpid(), 1 << 30}}); err == nil {
		t.Error("a thread that does not exist")
	}
}

// Bytes count only in the window, and from the first read in it.
func TestBytesInTheWindow(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	now := time.Now()
	w := window{start: now.Add(30 * time.Millisecond), end: now.Add(500 * time.Millisecond)}
	sent := make(chan error, 1)
	go func() {
		err := send(fds[1], 1000, w)
		unix.Close(fds[1])
		sent <- err
	}()
	bytes, passed, err := receive(fds[0], 1000, w)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if err != nil || bytes < 1000 || passed <= 0 || passed > 470*time.Millisecond {
		t.Errorf("%d bytes in %v, %v", bytes, passed, err)
	}
}

func invented() Result {
	r := Result{BridgeFilter: true, Setup: DefaultSetup()}
	for i, s := range SetUps() {
		us := float64(10 + 2*i)
		r.SetUps = append(r.SetUps, Measured{s.Name, Figures{
			Streams: []Stream{{Transmit, 2000, 0.5, 0.4}},
			Trips: []Trip{
				{Protocol: TCP, Pairs: 1, P50US: 3 * us, P99US: 40, MeanUS: us}, {Protocol: TCP, Pairs: 1, Awake: true, P50US: 2 * us}, {Protocol: UDP, Pairs: 1, P50US: us, Lost: 3},
				{Protocol: TCP, Pairs: 1, OneCPU: true, MeanUS: us, RunDelayUS: 10}, {Protocol: TCP, Pairs: 32, OneCPU: true, MeanUS: 820, RunDelayUS: 610},
				{Protocol: TCP, Pairs: 32, OneCPU: true, Busy: true, MeanUS: 9999, OperationsPerMinute: 1000},
			},
		}})
	}
	return r
}

func TestTable(t *testing.T) {
	var b strings.Builder
	r := invented()
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"bridge-nat     transmit  2000  0.50              0.40\n",
		"The bridge: +2.0 us (+20 %) in the TCP round trip of one pair.\n", "bridge: 1.00 times the CPU time of loopback",
		"bridge-nat: from 1 to 32 pairs on one CPU, the mean round trip changes from 16.0 to 820 us; the delay in the run queue changes by 600 us, which is 75 % of this.\n",
		"1000/min", "tcp       kept awake  ", "tcp       may halt    ",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	b.Reset()
	r.SetUps, r.BridgeFilter = r.SetUps[1:2], false
	r.SetUps[0].Trips = r.SetUps[0].Trips[:1]
	if err := r.WriteTable(&b); err != nil || len(r.Findings()) > 0 || !strings.Contains(b.String(), "no br_netfilter") {
		t.Errorf("%v, %v:\n%s", r.Findings(), err, &b)
	}
}

// Round trips of different kinds are not compared.
func TestFindingsCompareOneKind(t *testing.T) {
	halting, awake := Trip{Protocol: TCP, Pairs: 1, P50US: 50}, Trip{Protocol: TCP, Pairs: 1, Awake: true, P50US: 20}
	oneCPU := Trip{Protocol: TCP, Pairs: 1, OneCPU: true, MeanUS: 10}
	r := Result{SetUps: []Measured{{Host, Figures{Trips: []Trip{halting, oneCPU}}}, {Bridge, Figures{Trips: []Trip{awake}}}}}
	if all := r.Findings(); len(all) > 0 {
		t.Errorf("%v", all)
	}
	r.SetUps[1].Trips = append(r.SetUps[1].Trips, Trip{Protocol: TCP, Pairs: 1, P50US: 60})
	if all := r.Findings(); len(all) != 1 || all[0] != "The bridge: +10.0 us (+20 %) in the TCP round trip of one pair." {
		t.Errorf("%v", all)
	}
}

func TestGrows(t *testing.T) {
	for i, trips := range [][]Trip{nil, {{Protocol: TCP, Pairs: 1, OneCPU: true, MeanUS: 5}}, {{Protocol: TCP, Pairs: 1, MeanUS: 5}, {Protocol: TCP, Pairs: 2, MeanUS: 9}},
		{{Protocol: TCP, Pairs: 1, OneCPU: true, MeanUS: 5}, {Protocol: TCP, Pairs: 2, OneCPU: true, MeanUS: 5}}} {
		if g, ok := Grows(trips); ok {
			t.Errorf("%d: %+v", i, g)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 9.876: "9.88", 10.04: "10.0", 1234.5: "1234"} {
		if got := number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
