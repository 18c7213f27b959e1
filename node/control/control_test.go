package control

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"penstock/core/ladder"
	"penstock/lab/asroot"
	"penstock/lab/blkio"
	"penstock/lab/disk"
	"penstock/lab/ledger"
	"penstock/node/control/cgroup"
	"penstock/node/control/freezer"
	"penstock/node/control/gate"
)

// daemonVariable makes this test binary a daemon that holds a cgroup until it is killed.
const daemonVariable = "PENSTOCK_TEST_CONTROL"

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	freezer.RunIfHelper()
	var err error
	switch os.Args[len(os.Args)-1] {
	case gate.RoleSupervisor:
		err = gate.RunSupervisor()
	case gate.RoleGate:
		err = gate.RunGate()
	default:
		if order := os.Getenv(daemonVariable); order != "" {
			err = daemon(order)
			break
		}
		asroot.Main(m, "Examine|KeepTheRecord")
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func daemon(order string) error {
	var journal, path, group string
	var d cgroup.Device
	if _, err := fmt.Sscanf(order, "%s %s %d:%d %s", &journal, &path, &d.Major, &d.Minor, &group); err != nil {
		return err
	}
	c, err := Open(options(journal, func(string, gate.Request, func()) {}))
	if err != nil {
		return err
	}
	c.Apply(Want{Enforce: true, Places: []Place{{path, d, "disk"}}, Processes: []Process{
		{Flow: "process:gated", UID: gate.AnyUser, Command: "nobody-has-it", Limit: 1 << 20},
	}})
	// With the gate the ladder would not go on to cgroups.
	c.machine[ladder.Gate] = ladder.Availability{Why: "switched off by the test"}
	c.Apply(Want{Enforce: true, Places: []Place{{path, d, "disk"}}, Processes: []Process{
		{Flow: "process:group", UID: gate.AnyUser, Cgroup: group, Limit: 2 << 20},
	}})
	for _, h := range c.Status().Holds {
		if !h.Holds {
			return fmt.Errorf("%+v", h)
		}
	}
	fmt.Println("holds")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func options(journal string, held func(string, gate.Request, func())) Options {
	return Options{Journal: journal, Mechanisms: []string{"gate", "cgroup", "pacing"}, Protected: func() []int { return nil },
		Gate: gate.Options{Command: []string{os.Args[0]}}, Held: held, Log: slog.New(slog.DiscardHandler)}
}

// machine has what a test changes: a mounted disk and a cgroup of version 1.
type machine struct {
	*testing.T
	disk    *disk.Disk
	place   Place
	group   *blkio.Group
	cgroup  string // its path
	journal string
}

func start(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	book, err := ledger.Open(dir)
	must(err)
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	d, err := disk.Start(t.Context(), disk.Options{Name: "disk", RunDir: dir, Size: 256 << 20})
	must(err)
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	var st unix.Stat_t
	must(unix.Stat(d.Device(), &st))
	group, err := blkio.Make(book, fmt.Sprintf("penstock-control-%d", os.Getpid()))
	must(err)
	m := &machine{T: t, disk: d, group: group, cgroup: "/" + filepath.Base(group.Path), journal: filepath.Join(dir, "journal", "control")}
	m.place = Place{d.Mount(), cgroup.Device{Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}, "disk"}
	return m
}

// open opens a control without the gate, so that the ladder goes on to cgroups.
func (m *machine) open(mechanisms ...string) *Control {
	m.Helper()
	o := options(m.journal, func(_ string, _ gate.Request, allow func()) { allow() })
	o.Mechanisms = mechanisms
	c, err := Open(o)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		if err := c.Close(); err != nil {
			m.Error(err)
		}
	})
	return c
}

// limits returns the cgroup's limits of reads.
func (m *machine) limits() string {
	m.Helper()
	b, err := os.ReadFile(filepath.Join(m.group.Path, "blkio.throttle.read_bps_device"))
	if err != nil {
		m.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (m *machine) want(enforce bool, limit int64) Want {
	return Want{Enforce: enforce, Places: []Place{m.place}, Processes: []Process{{Flow: "process:group", UID: gate.AnyUser, Cgroup: m.cgroup, Limit: limit}}}
}

func TestACgroupFollowsThePolicy(t *testing.T) {
	m := start(t)
	c := m.open("cgroup")
	device := m.place.Device.String()
	for _, step := range []struct {
		what  string
		want  Want
		limit string
		holds int
	}{
		{"observe", m.want(false, 1<<20), "", 1},
		{"enforce", m.want(true, 1<<20), device + " 1048576", 1},
		{"another limit", m.want(true, 2<<20), device + " 2097152", 1},
		{"the same again", m.want(true, 2<<20), device + " 2097152", 1},
		{"no rule", Want{Enforce: true, Places: []Place{m.place}}, "", 0},
		{"a rule again", m.want(true, 1<<20), device + " 1048576", 1},
		{"the kill switch", m.want(false, 1<<20), "", 1},
	} {
		c.Apply(step.want)
		s := c.Status()
		if m.limits() != step.limit || len(s.Holds) != step.holds || s.Error != "" || (s.Changes > 0) != (step.limit != "") {
			t.Errorf("%s: limits %q, %+v", step.what, m.limits(), s)
		}
		for _, h := range s.Holds {
			if taken, ok := ladder.Taken(h.Steps); !ok || taken != ladder.CgroupV1 || h.Holds != (step.limit != "") {
				t.Errorf("%s: %+v", step.what, h)
			}
		}
	}
	c.Apply(m.want(true, 1<<20))
	if err := c.Close(); err != nil || m.limits() != "" {
		t.Errorf("after the end: %v, %q", err, m.limits())
	}
	c.Apply(m.want(true, 1<<20))
	if m.limits() != "" {
		t.Error("a closed control has changed the system")
	}
}

// A cgroup that does not exist yet is held when it appears; processes in a shared cgroup are not.
func TestHoldsThatAreNotPossible(t *testing.T) {
	m := start(t)
	c := m.open("cgroup")
	w := m.want(true, 1<<20)
	w.Processes = append(w.Processes,
		Process{Flow: "process:missing", UID: gate.AnyUser, Cgroup: m.cgroup + "/missing", Limit: 1 << 20},
		Process{Flow: "process:command", UID: gate.AnyUser, Command: "dd", Limit: 1 << 20},
		Process{Flow: "process:observed", UID: gate.AnyUser, Cgroup: m.cgroup + "/other", Limit: 1 << 20, Observe: true})
	for range 2 {
		c.Apply(w)
		holds := map[string]Hold{}
		for _, h := range c.Status().Holds {
			holds[h.Flow] = h
		}
		_, command := ladder.Taken(holds["process:command"].Steps)
		if !holds["process:group"].Holds || holds["process:missing"].Holds || holds["process:missing"].Error == "" || command || holds["process:observed"].Holds {
			t.Errorf("%+v", holds)
		}
	}
	if err := os.Mkdir(filepath.Join(m.group.Path, "missing"), 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filepath.Join(m.group.Path, "missing"))
	c.Apply(w)
	for _, h := range c.Status().Holds {
		if h.Flow == "process:missing" && !h.Holds {
			t.Errorf("%+v", h)
		}
	}
}

// Apply compares the policy with the state in force: a limit that somebody has lifted is set again. If two
// entries name one cgroup, the first one counts, and the second one takes over when the first is removed.
func TestTheStateInForceCounts(t *testing.T) {
	m := start(t)
	c := m.open("cgroup")
	device := m.place.Device.String()
	w := m.want(true, 1<<20)
	c.Apply(w)
	file := filepath.Join(m.group.Path, "blkio.throttle.read_bps_device")
	if err := os.WriteFile(file, []byte(device+" 0"), 0); err != nil || m.limits() != "" {
		t.Fatalf("%v, %q", err, m.limits())
	}
	c.Apply(w)
	if m.limits() != device+" 1048576" {
		t.Errorf("after somebody has lifted the limit: %q", m.limits())
	}
	second := w.Processes[0]
	second.Flow, second.Limit = "process:second", 9<<20
	both := w
	both.Processes = []Process{w.Processes[0], second}
	c.Apply(both)
	if s := c.Status(); m.limits() != device+" 1048576" || !s.Holds[0].Holds || s.Holds[1].Holds {
		t.Errorf("two entries: %q, %+v", m.limits(), s.Holds)
	}
	both.Processes = []Process{second}
	c.Apply(both)
	if s := c.Status(); m.limits() != device+" 9437184" || !s.Holds[0].Holds {
		t.Errorf("the second entry alone: %q, %+v", m.limits(), s.Holds)
	}
}

// One mechanism holds a flow on a device, even if different ones are chosen for its directories there.
func TestOneMechanismForADevice(t *testing.T) {
	disk, other := cgroup.Device{Major: 7, Minor: 1}, cgroup.Device{Major: 7, Minor: 2}
	decide := func(flow, group string, at cgroup.Device, m ladder.Mechanism) *decision {
		d := &decision{Hold: Hold{Flow: flow, Steps: []ladder.Step{{Mechanism: m, Taken: true}}}, process: Process{Flow: flow, Cgroup: group}, place: Place{Device: at}, taken: m}
		return d
	}
	all := []*decision{
		decide("a", "/a", disk, ladder.CgroupV1), decide("a", "/a", disk, ladder.Gate), decide("a", "/a", other, ladder.CgroupV1),
		decide("b", "/b", disk, ladder.Freezer), decide("b", "/b", other, ladder.CgroupV1),
		decide("c", "/a", other, ladder.CgroupV1), decide("c", "/a", disk, ladder.Gate),
		decide("d", "/d", disk, ladder.Freezer), decide("d", "/d", other, ladder.Freezer),
		decide("e", "/e", disk, ladder.GateReads), decide("e", "/e", other, ladder.CgroupV1),
		decide("f", "/f", disk, ladder.GateReads), decide("f", "/f", other, ladder.GateReads),
	}
	oneMechanism(all)
	want := []ladder.Mechanism{"", ladder.Gate, ladder.CgroupV1, "", ladder.CgroupV1, "", ladder.Gate, ladder.Freezer, ladder.Freezer,
		"", ladder.CgroupV1, ladder.GateReads, ladder.GateReads}
	for i, d := range all {
		if taken, ok := ladder.Taken(d.Steps); d.taken != want[i] || ok != (want[i] != "") || ok && taken != want[i] || !ok && d.Steps[0].Why == "" {
			t.Errorf("%d: %q, %+v; want %q", i, d.taken, d.Steps, want[i])
		}
	}
}

// A process in a cgroup that has a limit passes at the gate, also if an earlier entry that the gate holds matches it.
func TestAProcessIsNotHeldTwice(t *testing.T) {
	dd := Process{Flow: "process:dd", UID: gate.AnyUser, Command: "dd"}
	group := Process{Flow: "process:group", UID: gate.AnyUser, Cgroup: "/a"}
	hold := func(p Process, by ladder.Mechanism) *decision {
		return &decision{Hold: Hold{Flow: p.Flow}, process: p, taken: by}
	}
	ofDD, ofGroup := gate.Rule{Class: 1, UID: gate.AnyUser, Comm: "dd"}, gate.Rule{UID: gate.AnyUser, CgroupPrefix: "/a"}
	for _, by := range []ladder.Mechanism{ladder.CgroupV1, ladder.CgroupV2, ladder.Freezer} {
		holds := []*decision{hold(dd, ladder.GateReads), hold(group, by), hold(group, by)} // on two devices
		if got, want := gateRules([]Process{dd, group}, []string{dd.Flow}, holds), []gate.Rule{ofGroup, ofDD, ofGroup}; !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", by, got, want)
		}
	}
	held := ofGroup
	held.Class = 2
	holds := []*decision{hold(dd, ladder.GateReads), hold(group, ladder.GateReads)}
	if got, want := gateRules([]Process{dd, group}, []string{dd.Flow, group.Flow}, holds), []gate.Rule{ofDD, held}; !slices.Equal(got, want) {
		t.Errorf("both by the gate: %+v, want %+v", got, want)
	}
}

// Entries with the same service are one flow, so the gate gives their processes one class.
func TestTwoEntriesOfAService(t *testing.T) {
	place := Place{Path: "/data", Device: cgroup.Device{Major: 7, Minor: 1}}
	server := Process{Flow: "service:hbase", Service: true, UID: 7, Command: "java", Weight: 1}
	shell := server
	shell.Command = "ruby"
	w := Want{Enforce: true, Places: []Place{place}, Processes: []Process{server, shell}}
	holds := decide(w, ladder.Machine{ladder.Gate: {OK: true}, ladder.CgroupV2: {OK: true}}, nil, map[string]error{}, func() []int { return nil })
	if len(holds) != 2 || holds[0].taken != ladder.Gate || holds[1].taken != ladder.Gate {
		t.Errorf("with a gate: %+v", holds)
	}
	want := []gate.Rule{{Class: 1, UID: 7, Comm: "java"}, {Class: 1, UID: 7, Comm: "ruby"}}
	if got := gateRules(w.Processes, []string{server.Flow}, holds); !slices.Equal(got, want) {
		t.Errorf("the gate's rules are %+v, want %+v", got, want)
	}
	w.Processes[0].Cgroup = "/system.slice/hbase.service"
	for _, d := range decide(w, ladder.Machine{ladder.CgroupV2: {OK: true}, ladder.Freezer: {OK: true}}, nil, map[string]error{}, func() []int { return nil }) {
		if d.taken != "" {
			t.Errorf("without a gate, %s holds the entry", d.taken)
		}
	}
}

// A start puts back the changes of a killed daemon. The gate of the killed daemon has ended with it.
func TestAKilledDaemonLeavesNothing(t *testing.T) {
	m := start(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %v %s", daemonVariable, m.journal, m.place.Path, m.place.Device, m.cgroup))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "holds\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if want := m.place.Device.String() + " 2097152"; m.limits() != want {
		t.Fatalf("limits %q, want %q", m.limits(), want)
	}
	if _, err := Open(options(m.journal, nil)); err == nil {
		t.Fatal("a second daemon could open the journal")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	c := m.open("cgroup")
	if s := c.Status(); s.Restored == 0 || s.Changes != 0 || m.limits() != "" {
		t.Errorf("after the start: limits %q, %+v", m.limits(), s)
	}
}

// A kernel before 6.14 reports reads only, without their range. The gate finds the range of a read(2) by itself, and lets writes pass.
func TestTheGateHoldsReadsOnAnEarlierKernel(t *testing.T) {
	t.Setenv("PENSTOCK_GATE_READS_ONLY", "1")
	m := start(t)
	requests := make(chan gate.Request, 64)
	c, err := Open(options(m.journal, func(_ string, r gate.Request, allow func()) {
		requests <- r
		allow()
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	c.Apply(Want{Enforce: true, Places: []Place{m.place}, Processes: []Process{{Flow: "process:dd", UID: gate.AnyUser, Command: "dd", Limit: 1 << 20}}})
	s := c.Status()
	if len(s.Holds) != 1 || !s.Holds[0].Holds || s.Gate == nil {
		t.Fatalf("%+v", s)
	}
	if taken, _ := ladder.Taken(s.Holds[0].Steps); taken != ladder.GateReads {
		t.Errorf("held by %s", taken)
	}
	dd, err := exec.LookPath("dd")
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(dd, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	file := filepath.Join(m.place.Path, "f")
	run("if=/dev/zero", "of="+file, "bs=64k", "count=3", "oflag=direct")
	if len(requests) > 0 {
		t.Errorf("a write was held: %+v", <-requests)
	}
	run("if="+file, "of=/dev/null", "bs=64k", "iflag=direct")
	var at int64
	for len(requests) > 0 {
		r := <-requests
		if r.Op != gate.Read || !r.Direct || r.Offset != at || r.Length != 64<<10 {
			t.Errorf("at %d: %+v", at, r)
		}
		at += r.Length
	}
	if at < 3*64<<10 {
		t.Errorf("reads were held up to %d", at)
	}
}

// The gate runs while the policy is enforced. A process passes if the first entry that matches it is only
// observed.
func TestTheGateFollowsThePolicy(t *testing.T) {
	m := start(t)
	flows := make(chan string, 64)
	c, err := Open(options(m.journal, func(flow string, _ gate.Request, allow func()) {
		flows <- flow
		allow()
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	dd, err := exec.LookPath("dd")
	if err != nil {
		t.Fatal(err)
	}
	write := func() {
		t.Helper()
		out, err := exec.Command(dd, "if=/dev/zero", "of="+filepath.Join(m.place.Path, "f"), "bs=64k", "count=2").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	rule := Process{Flow: "process:dd", UID: gate.AnyUser, Command: "dd", Limit: 1 << 20}
	observed := Process{Flow: "process:first", UID: os.Geteuid(), Observe: true, Limit: 1 << 20}
	want := Want{Enforce: true, Places: []Place{m.place}, Processes: []Process{rule}}
	c.Apply(want)
	if s := c.Status(); len(s.Holds) != 1 || !s.Holds[0].Holds || s.Gate == nil {
		t.Fatalf("%+v", s)
	}
	write()
	select {
	case flow := <-flows:
		if flow != "process:dd" {
			t.Errorf("held as %s", flow)
		}
	default:
		t.Error("dd was not held")
	}
	for len(flows) > 0 {
		<-flows
	}
	want.Processes = []Process{observed, rule}
	c.Apply(want)
	write()
	if len(flows) > 0 {
		t.Errorf("a process that belongs to an observed entry was held as %s", <-flows)
	}
	c.Apply(Want{Enforce: true, Places: []Place{m.place}})
	write()
	if s := c.Status(); len(s.Holds) > 0 || s.Gate == nil || s.Gate.Passed > 0 || len(flows) > 0 {
		t.Errorf("without rules, the file system is watched only: %+v", s)
	}
	c.Apply(Want{Places: []Place{m.place}})
	if s := c.Status(); s.Gate != nil || s.Changes != 0 {
		t.Errorf("without enforcement: %+v", s)
	}
	want.Processes = []Process{rule}
	c.Apply(want)
	c.mu.Lock()
	g := c.gate
	c.mu.Unlock()
	if err := g.Close(); err != nil { // as when it is killed
		t.Error(err)
	}
	<-g.Done()
	c.Apply(want)
	if s := c.Status(); s.Holds[0].Holds || s.Holds[0].Error == "" || s.Gate != nil {
		t.Errorf("after the gate's end: %+v", s)
	}
	c.mu.Lock()
	c.failed = c.failed.Add(-retryAfter)
	c.mu.Unlock()
	c.Apply(want)
	if s := c.Status(); !s.Holds[0].Holds || s.Gate == nil {
		t.Errorf("after another start of the gate: %+v", s)
	}
}

func TestExamine(t *testing.T) {
	m := Examine([]string{"pacing"})
	for _, r := range ladder.All() {
		if r != ladder.Pacing && (m[r].OK || !strings.Contains(m[r].Why, "do not name it")) {
			t.Errorf("%s: %+v", r, m[r])
		}
	}
	if v1, v2 := Examine([]string{"cgroup"})[ladder.CgroupV1], Examine([]string{"cgroup"})[ladder.CgroupV2]; v1.OK && v2.OK {
		t.Error("both versions of cgroups have the controller")
	}
}
