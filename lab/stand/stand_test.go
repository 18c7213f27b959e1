package stand

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/ledger"
)

// Environment variables of a run that waits to be killed: its folder, and the folder of the binary.
const (
	victimVariable = "PENSTOCK_TEST_STAND_VICTIM"
	binVariable    = "PENSTOCK_TEST_STAND_BIN"
)

// parameter is a kernel parameter that has no effect within a few seconds, and that no other test
// sets.
const parameter = "vm/stat_interval"

// bin contains penstock, and a file in place of the agent's jar.
var bin = os.Getenv(binVariable)

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	if dir := os.Getenv(victimVariable); dir != "" {
		if err := victim(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "penstock-stand-bin-"); err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(bin)
	out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "penstock"), "penstock/cmd/penstock").CombinedOutput()
	if err = errors.Join(err, os.WriteFile(filepath.Join(bin, "agent.jar"), nil, 0o600)); err != nil {
		fmt.Printf("build penstock: %v: %s\n", err, out)
		return 1
	}
	return m.Run()
}

// small is a stand without Hadoop. Where modelled disks are impossible, a plain folder replaces the
// disk, and there are no machines.
func small(dir string) Spec {
	spec := Spec{
		Name: "stand", Dir: dir, Binary: filepath.Join(bin, "penstock"), AgentJar: filepath.Join(bin, "agent.jar"), Cache: dir,
		Sysctls:       []Sysctl{{parameter, "7"}},
		DisksOptional: true, Disks: []disk.Options{{Name: "disk", Size: 32 << 20}},
		Nodes:  func(*Stand) []daemon.Options { return []daemon.Options{{Mode: "observe"}} },
		Broker: func(s *Stand) []string { return []string{"--policy", s.PolicyFile()} },
	}
	if disk.Available() == nil {
		spec.Machines = 1
	}
	return spec
}

// traces are the traces that a stand leaves on the machine while it is up.
type traces struct {
	Processes []int
	Namespace string // path of its name; empty: no namespace
	Device    string // device of its disk; empty: a plain folder
	Before    string // the kernel parameter's value
}

func tracesOf(s *Stand, before string) traces {
	all := traces{Processes: []int{s.Nodes[0].PID(), s.Broker.PID()}, Before: before}
	if s.Network != nil {
		all.Namespace = s.Network.Machines[0].Path()
	}
	if s.Disks[0].Modelled() {
		all.Device = s.Disks[0].Device()
	}
	return all
}

func parameterNow(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc/sys", parameter))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// checkUp verifies that all parts are present.
func checkUp(t *testing.T, dir string, all traces) {
	t.Helper()
	for _, pid := range all.Processes {
		if !running(pid) {
			t.Errorf("process %d does not run", pid)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Contains(string(mounts), dir); got != (all.Device != "") {
		t.Errorf("mounted: %v, the disk's device is %q", got, all.Device)
	}
	if all.Namespace != "" {
		if _, err := os.Stat(all.Namespace); err != nil {
			t.Error(err)
		}
	}
	if now := parameterNow(t); os.Geteuid() == 0 && now != "7" {
		t.Errorf("%s is %s", parameter, now)
	}
}

// checkGone verifies that nothing is left except files in the run folder.
func checkGone(t *testing.T, dir string, all traces) {
	t.Helper()
	for _, pid := range all.Processes {
		if running(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("still mounted:\n%s", mounts)
	}
	if all.Device != "" {
		backing, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(all.Device), "loop/backing_file"))
		if err == nil && strings.Contains(string(backing), dir) {
			t.Errorf("%s is still attached to %s", all.Device, backing)
		}
	}
	if all.Namespace != "" {
		if _, err := os.Stat(all.Namespace); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there (%v)", all.Namespace, err)
		}
	}
	if now := parameterNow(t); now != all.Before {
		t.Errorf("%s is %s, was %s", parameter, now, all.Before)
	}
	if _, err := os.Stat(filepath.Join(dir, ledger.FileName)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the ledger is still there")
	}
}

// running reports whether a process is alive. A zombie is not alive.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestUpAndDown: every part of the specification is present and works, and Down removes all of
// them.
func TestUpAndDown(t *testing.T) {
	dir, before := t.TempDir(), parameterNow(t)
	prepared, stopped := 0, 0
	spec := small(dir)
	spec.Prepare = func(_ context.Context, s *Stand) error {
		prepared++
		if len(s.Disks) != 1 || s.Nodes != nil {
			t.Errorf("%d disks, %d daemons at the time of Prepare", len(s.Disks), len(s.Nodes))
		}
		return nil
	}
	spec.Stop = func() error { stopped++; return nil }
	s, err := Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Down()
	all := tracesOf(s, before)
	checkUp(t, dir, all)

	if doc, err := s.Status(t.Context(), 0); err != nil || doc.Mode != "observe" {
		t.Errorf("the daemon's status: %+v, %v", doc, err)
	}
	if err := s.SetWeights(t.Context(), 0, "default: 3\n"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(s.PolicyFile()); err != nil || string(text) != "default: 1\n" {
		t.Errorf("the broker's policy is %q, %v", text, err)
	}
	first, address := s.Nodes[0].Log, s.BrokerAddress()
	if err := s.RestartNode(t.Context(), 0, func(o *daemon.Options) { o.Mode = "off" }); err != nil {
		t.Fatal(err)
	}
	if doc, err := s.Status(t.Context(), 0); err != nil || doc.Mode != "off" || s.Usual(0).Mode != "off" || s.Nodes[0].Log == first {
		t.Errorf("after a restart: %+v, %v, log %s", doc, err, s.Nodes[0].Log)
	}
	if err := errors.Join(s.Broker.Kill(), s.StartBroker(t.Context())); err != nil || s.BrokerAddress() != address {
		t.Errorf("the broker again: %v, at %s", err, s.BrokerAddress())
	}
	all.Processes = append(all.Processes, s.Nodes[0].PID(), s.Broker.PID())
	if err := errors.Join(os.WriteFile(filepath.Join(s.Disks[0].Mount(), "file"), make([]byte, 1<<20), 0o600), s.Forget()); err != nil {
		t.Error(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.AwaitAgents(ctx, 0, 1); err == nil || !strings.Contains(err.Error(), "1 agents at daemon 0") {
		t.Errorf("nobody waits for agents: %v", err)
	}
	if err := s.Nodes[0].Kill(); err != nil {
		t.Error(err)
	}
	if err := s.AwaitAgents(t.Context(), 0, 1); err == nil || !strings.Contains(err.Error(), "the daemon has ended") {
		t.Errorf("agents of a daemon that has ended: %v", err)
	}

	for range 2 {
		if err := s.Down(); err != nil {
			t.Error(err)
		}
	}
	checkGone(t, dir, all)
	if prepared != 1 || stopped != 1 {
		t.Errorf("Prepare was called %d times, Stop %d times", prepared, stopped)
	}
}

// TestUpPutsBack: a start that fails or is interrupted leaves nothing behind.
func TestUpPutsBack(t *testing.T) {
	bad := errors.New("bad")
	for name, test := range map[string]struct {
		change func(spec *Spec, cancel func())
		want   string
	}{
		"Prepare fails": {func(spec *Spec, _ func()) { spec.Prepare = func(context.Context, *Stand) error { return bad } }, "bad"},
		"a daemon ends": {func(spec *Spec, _ func()) {
			spec.Nodes = func(*Stand) []daemon.Options { return []daemon.Options{{Mode: "observe"}, {Mode: "nonsense"}} }
		}, "nonsense"},
		"the broker ends": {func(spec *Spec, _ func()) { spec.Broker = func(*Stand) []string { return []string{"--nonsense"} } }, "penstock broker"},
		"Stop fails": {func(spec *Spec, _ func()) {
			spec.Prepare = func(context.Context, *Stand) error { return errors.New("first") }
			spec.Stop = func() error { return bad }
		}, "bad"},
		"the context ends": {func(spec *Spec, cancel func()) {
			spec.Prepare = func(context.Context, *Stand) error { cancel(); return nil }
		}, context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			dir, before := t.TempDir(), parameterNow(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			spec := small(dir)
			stopped := 0
			spec.Stop = func() error { stopped++; return nil }
			test.change(&spec, cancel)
			s, err := Up(ctx, spec)
			if err == nil {
				t.Fatal("it is up", s.Down())
			}
			if !strings.Contains(strings.ReplaceAll(err.Error(), "\n", " "), test.want) {
				t.Errorf("%v: want %q in it", err, test.want)
			}
			if stopped != 1 && name != "Stop fails" {
				t.Errorf("Stop was called %d times", stopped)
			}
			checkGone(t, dir, traces{Before: before, Processes: inFolder(t, dir)})
		})
	}
}

// inFolder returns the processes that have the folder in their arguments, such as in the path of a
// daemon's settings.
func inFolder(t *testing.T, dir string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), dir) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestBadSpecs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"a long folder": {func(spec *Spec) { spec.Dir = filepath.Join(spec.Dir, strings.Repeat("a", socketPathMax)) }, "a shorter path"},
		"no binary":     {func(spec *Spec) { spec.Binary += "-missing" }, "make build"},
		"no jar":        {func(spec *Spec) { spec.AgentJar += "-missing" }, "make build"},
	} {
		spec := small(t.TempDir())
		test.change(&spec)
		if s, err := Up(t.Context(), spec); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in the error", name, err, test.want)
			if s != nil {
				s.Down()
			}
		}
	}
	if root, err := checkout(); err != nil || filepath.Base(filepath.Dir(filepath.Dir(mustGetwd(t)))) != filepath.Base(root) {
		t.Errorf("the checkout is %s, %v", root, err)
	}
}

func mustGetwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// victim starts a stand, prints a line, and waits to be killed.
func victim(dir string) error {
	before, err := os.ReadFile(filepath.Join("/proc/sys", parameter))
	if err != nil {
		return err
	}
	s, err := Up(context.Background(), small(dir))
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(tracesOf(s, strings.TrimSpace(string(before)))); err != nil {
		return err
	}
	select {}
}

// TestAKilledRunIsPutBack: kill -9 ends the process of a stand and the server of its disk. The next
// run in the folder finds everything undone, and starts.
func TestAKilledRunIsPutBack(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), victimVariable+"="+dir, binVariable+"="+bin)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		ledger.Recover(dir)
	})
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	var all traces
	if err == nil {
		err = json.Unmarshal([]byte(line), &all)
	}
	if err != nil {
		rest, _ := io.ReadAll(lines)
		t.Fatalf("the run says %q: %v %s", line, err, rest)
	}
	checkUp(t, dir, all)
	if _, err := Up(t.Context(), small(dir)); !errors.Is(err, ledger.ErrInUse) {
		t.Fatalf("a second run in the folder of one that lives: %v, want ErrInUse", err)
	}
	checkUp(t, dir, all)

	// The disk's server is killed first, so it cannot react to its parent's end.
	for _, pid := range servers(t, cmd.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	spec := small(dir)
	spec.Sysctls, spec.Machines, spec.Nodes, spec.Broker, spec.Disks = nil, 0, nil, nil, nil
	next, err := Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Down(); err != nil {
		t.Error(err)
	}
	checkGone(t, dir, all)
}

// servers returns the children of a process that run this binary: the servers of its disks.
func servers(t *testing.T, parent int) (pids []int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			continue
		}
		proc := filepath.Dir(file)
		if exe, err := os.Readlink(filepath.Join(proc, "exe")); err == nil && exe == self {
			pid, _ := strconv.Atoi(filepath.Base(proc))
			pids = append(pids, pid)
		}
	}
	if want := disk.Available() == nil; (len(pids) > 0) != want {
		t.Fatalf("servers of disks: %v, disks are modelled: %v", pids, want)
	}
	return pids
}

// A wait ends when its condition holds; otherwise its error names the condition.
func TestAwait(t *testing.T) {
	s := &Stand{}
	asked := 0
	if err := s.Await(t.Context(), "three times", func(context.Context) (bool, error) {
		asked++
		return asked == 3, nil
	}); err != nil || asked != 3 {
		t.Errorf("%v after %d questions", err, asked)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := s.Await(ctx, "it comes", func(context.Context) (bool, error) { return false, errors.New("not there") })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "it comes: not there") {
		t.Error(err)
	}
}
