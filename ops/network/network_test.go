package network

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"penstock/lab/asroot"
)

const patience = 20 * time.Second

func TestMain(m *testing.M) {
	RunIfWorker()
	asroot.Main(m, "Rules|Setup|Find|Operation|Grows|Table|Look|Bytes|Number")
}

func short() Setup {
	s := DefaultSetup()
	s.WarmUpS, s.MeasuredS, s.Pairs = 0.1, 0.3, []int{1, 3}
	return s
}

// Every set-up carries all kinds of traffic, and nothing remains of it.
func TestAllSetUpsAreMeasured(t *testing.T) {
	before := state(t)
	for _, setUp := range SetUps() {
		parts := []Part{PartStreams, PartTrips}
		if setUp.Name == BridgeNAT {
			parts = Parts()
		}
		for _, part := range parts {
			f, err := Measure(t.Context(), setUp, part, short())
			if err != nil {
				t.Fatal(err)
			}
			if part == PartStreams {
				if len(f.Streams) != 3 {
					t.Errorf("%s: %+v", setUp.Name, f)
				}
				for _, s := range f.Streams {
					if !(s.MBPerSecond > 1 && s.ThreadsCPU > 0) {
						t.Errorf("%s: %+v", setUp.Name, s)
					}
				}
				continue
			}
			if len(f.Trips) != 2 {
				t.Errorf("%s, %s: %+v", setUp.Name, part, f)
			}
			for _, x := range f.Trips {
				// Both ends wait in every trip. On two CPUs, a wait may be too short to give up the CPU.
				if !(x.Trips > 10 && x.P50US > 0 && x.P50US <= x.P99US && x.CPUUS > 0 && x.Switches > 0.1) || (part == PartBusy) != (x.OperationsPerMinute > 0) {
					t.Errorf("%s, %s: %+v", setUp.Name, part, x)
				}
			}
		}
	}
	if after := state(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// state returns the links, addresses and named namespaces of this machine, and the parameters that a measurement sets in
// its own namespaces.
func state(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(i.Name)
		for _, a := range addresses {
			b.WriteString(" " + a.String())
		}
		b.WriteString("\n")
	}
	for _, path := range []string{bridgeParameter, "/proc/sys/net/ipv4/ip_forward"} {
		value, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		b.Write(value)
	}
	return b.String()
}

// children returns the workers of this process.
func children(t *testing.T) (pids []int) {
	t.Helper()
	all, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PPID == os.Getpid() {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func TestAnInterruptedMeasurementLeavesNoProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	setUp := SetUps()[1]
	setUp.Accelerate = func(context.Context, *Site) (func() error, error) {
		time.AfterFunc(300*time.Millisecond, cancel)
		return func() error { return nil }, nil
	}
	s := short()
	s.MeasuredS = 60
	if _, err := Measure(ctx, setUp, PartAwake, s); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A worker ends when the process that measures is gone, and its namespace with it.
func TestAWorkerEndsWithTheMeasurement(t *testing.T) {
	p, err := startProcess(alone)
	if err != nil {
		t.Fatal(err)
	}
	if p.order(order{Action: actListen, Kind: kindTCP, Address: SetUps()[0].listenAt(0, 0), RequestBytes: 100, AnswerBytes: 200, CPU: noCPU}, patience); err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(p.pid)
	if err != nil {
		t.Fatal(err)
	}
	p.in.Close() // as the kernel does when the process that measures is killed
	awaitEnd(t, process)
	p.closeFiles()
}

// So does a process that keeps a CPU awake.
func TestAnOccupierEndsWithTheMeasurement(t *testing.T) {
	cmd, in, out, err := occupier(cpus()[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := awaitOccupied(out); err != nil {
		t.Error(err)
	}
	in.Close()
	awaitEnd(t, cmd.Process)
}

func awaitEnd(t *testing.T, process *os.Process) {
	t.Helper()
	t.Cleanup(func() { _ = process.Kill() }) // fails if the process has ended, as it should
	ended := make(chan error, 1)
	go func() {
		state, err := process.Wait()
		if err == nil && !state.Success() {
			err = errors.New(state.String())
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the process does not end")
	}
}

// A cure is brought into force when the containers run, and undone before they end, also after a failure.
func TestAccelerate(t *testing.T) {
	var did []string
	failure := errors.New("no such cure")
	for _, fails := range []bool{false, true} {
		did = nil
		setUp := SetUps()[3]
		setUp.Accelerate = func(_ context.Context, s *Site) (func() error, error) {
			if fails {
				return nil, failure
			}
			containers := s.Containers()
			if len(containers) != 2 || containers[0].Server || !containers[1].Server {
				t.Errorf("%+v", containers)
			}
			for _, c := range containers {
				own, err := os.Readlink("/proc/self/ns/net")
				theirs, err2 := os.Readlink(filepath.Join("/proc", strconv.Itoa(c.PID), "ns/net"))
				if errors.Join(err, err2) != nil || own == theirs {
					t.Errorf("%+v: %s, %v", c, theirs, errors.Join(err, err2))
				}
			}
			did = append(did, "force")
			return func() error {
				if err := unix.Kill(containers[0].PID, 0); err != nil {
					t.Error(err)
				}
				did = append(did, "undo")
				return nil
			}, nil
		}
		_, err := Measure(t.Context(), setUp, PartTrips, short())
		if fails && !errors.Is(err, failure) || !fails && (err != nil || !slices.Equal(did, []string{"force", "undo"})) {
			t.Errorf("%v: %v", did, err)
		}
	}
}
