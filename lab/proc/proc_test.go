package proc

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

const work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"

// start runs a script and returns when the script has written something. The script's input is
// closed by end.
func start(t *testing.T, script string) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("bash", "-c", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() { in.Close(); cmd.Wait() }
	t.Cleanup(end)
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, end
}

// The CPU time of a process's children is included whether they are alive, have been waited for, or
// have ended without being waited for.
func TestDescendantsCountsTheLivingAndTheDead(t *testing.T) {
	// The first child is waited for. The second is not, because cat does not wait. The third waits
	// for input.
	pid, end := start(t, "bash -c '"+work+"'; bash -c '"+work+"' & bash -c '"+work+"; echo; read x' <&0 & exec cat >/dev/null")
	used, living, err := Descendants(pid)
	for deadline := time.Now().Add(time.Minute); err == nil && living > 1 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		used, living, err = Descendants(pid)
	}
	if err != nil || living != 1 {
		t.Fatalf("%d children live, %v", living, err)
	}
	waited := childrenWaitedFor(t, pid)
	if waited < Tick || used < waited+2*Tick || used > time.Minute {
		t.Errorf("%v in all, %v of the one that was waited for", used, waited)
	}
	end()
	if _, _, err := Descendants(pid); err == nil {
		t.Error("the descendants of a process that is gone")
	}
}

// childrenWaitedFor returns the CPU time of a process's children that were waited for, as in ps.
func childrenWaitedFor(t *testing.T, pid int) time.Duration {
	t.Helper()
	p, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := p.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(stat.CUTime+stat.CSTime) * Tick
}

func TestMachineCPUTimeGrowsWithWork(t *testing.T) {
	before, err := MachineCPUTime()
	if err != nil || before < time.Second {
		t.Fatalf("%v, %v", before, err)
	}
	pid, _ := start(t, work+"; echo; read x")
	own, err1 := CPUTime(pid)
	after, err2 := MachineCPUTime()
	if err1 != nil || err2 != nil || after-before < own/2 || after%Tick != 0 {
		t.Errorf("the machine worked %v while a process worked %v: %v, %v", after-before, own, err1, err2)
	}
}

// A process that computes uses CPU time.
func TestAnotherProcess(t *testing.T) {
	pid, end := start(t, work+"; exec 7</dev/null; echo; read x")
	used, err := CPUTime(pid)
	if err != nil || used < time.Millisecond || used > time.Minute {
		t.Errorf("CPU time %v, %v", used, err)
	}
	all, err := ThreadsCPUTime(pid, func(name string) bool { return name == "bash" })
	if err != nil || all < used/2 || all > 2*used {
		t.Errorf("its threads used %v of %v, %v", all, used, err)
	}
	if none, err := ThreadsCPUTime(pid, func(string) bool { return false }); err != nil || none != 0 {
		t.Errorf("no threads used %v, %v", none, err)
	}
	if resident, peak, err := Memory(pid); err != nil || resident < 64<<10 || peak < resident {
		t.Errorf("%d bytes, %d at most, %v", resident, peak, err)
	}
	if state, threads, err := State(pid); err != nil || !strings.Contains("RS", state) || threads != 1 {
		t.Errorf("state %q, %d threads, %v", state, threads, err)
	}
	if names, err := Descriptors(pid); err != nil || len(names) < 4 || !slices.Contains(names, "/dev/null") {
		t.Errorf("descriptors %q, %v", names, err)
	}
	end()
	_, err1 := CPUTime(pid)
	_, err2 := ThreadsCPUTime(pid, func(string) bool { return true })
	_, _, err3 := Memory(pid)
	_, _, err4 := State(pid)
	_, err5 := Descriptors(pid)
	for i, err := range []error{err1, err2, err3, err4, err5} {
		if err == nil {
			t.Errorf("figure %d of a process that is gone", i+1)
		}
	}
}

func TestThisMachine(t *testing.T) {
	m := ThisMachine()
	if m.KernelRelease == "" || len(m.CPUs) != runtime.NumCPU() || m.MemoryBytes < 64<<20 {
		t.Errorf("%+v, want %d CPUs", m, runtime.NumCPU())
	}
}

func TestOwnProcess(t *testing.T) {
	if own, err := CPUTime(os.Getpid()); err != nil || own <= 0 {
		t.Errorf("%v, %v", own, err)
	}
}

// A process that has ended and was not waited for has a state and no memory.
func TestZombie(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	pid := cmd.Process.Pid
	var state string
	for deadline := time.Now().Add(time.Minute); state != "Z" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var err error
		if state, _, err = State(pid); err != nil {
			t.Fatal(err)
		}
	}
	if _, peak, err := Memory(pid); state != "Z" || err == nil {
		t.Errorf("state %q, peak %d", state, peak)
	}
}
