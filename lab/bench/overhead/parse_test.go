package overhead

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestParseAnswer(t *testing.T) {
	took, bytes, err := parseAnswer("ok 1500000000 1048576")
	if err != nil || took != 1500*time.Millisecond || bytes != mib {
		t.Errorf("%v, %d, %v", took, bytes, err)
	}
	if _, _, err := parseAnswer("error java.io.IOException: no such file"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
}

func FuzzParseAnswer(f *testing.F) {
	for _, s := range []string{"", "ok", "ok 1", "ok 1 2", "ok 0 2", "ok -1 2", "ok 1 -2", "ok 1 2 3", "error ", "error x", "ok 99999999999999999999 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if took, bytes, err := parseAnswer(s); err == nil && (took <= 0 || bytes < 0) {
			t.Errorf("%q gave %v, %d", s, took, bytes)
		}
	})
}

func TestCompilersAreToldApart(t *testing.T) {
	for comm, want := range map[string]bool{"C1 CompilerThre\n": true, "C2 CompilerThre\n": true, "DataXceiver for\n": false, "": false} {
		if isCompiler(comm) != want {
			t.Errorf("%q: %v", comm, !want)
		}
	}
	if used, err := compilerTime(os.Getpid()); err != nil || used != 0 {
		t.Errorf("this process's compilers: %v, %v", used, err)
	}
}

func FuzzParseSchedstat(f *testing.F) {
	for _, s := range []string{"", "1 2 3\n", "-1 2 3", "x", "99999999999999999999 1 1", "7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if used, err := parseSchedstat(s); err == nil && used < 0 {
			t.Errorf("%q gave %v", s, used)
		}
	})
}

func TestParsePeak(t *testing.T) {
	n, err := parsePeak(strings.NewReader("Name:\tpenstock\nVmPeak:\t  99 kB\nVmHWM:\t   1234 kB\n"))
	if err != nil || n != 1234<<10 {
		t.Errorf("%d, %v", n, err)
	}
}

func FuzzParsePeak(f *testing.F) {
	for _, s := range []string{"", "VmHWM:", "VmHWM:\t-1 kB\n", "VmHWM:\t1\n", "VmHWM:\t1 MB\n", "VmHWM:\t99999999999999999999 kB\n", "VmHWM: 7 kB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parsePeak(strings.NewReader(s)); err == nil && n < 0 {
			t.Errorf("%q gave %d", s, n)
		}
	})
}

// A process that computes uses CPU time, one that waits does not.
func TestCPUTimeIsAnotherProcesss(t *testing.T) {
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo; read x")
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
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	used, err := cpuTime(cmd.Process.Pid)
	if err != nil || used < time.Millisecond || used > time.Minute {
		t.Errorf("%v, %v", used, err)
	}
	if peak, err := peakMemory(cmd.Process.Pid); err != nil || peak < 64<<10 {
		t.Errorf("peak %d, %v", peak, err)
	}
	in.Close()
	cmd.Wait()
	if _, err := cpuTime(cmd.Process.Pid); err == nil {
		t.Error("the CPU time of a process that is gone")
	}
	if own, err := cpuTime(os.Getpid()); err != nil || own <= 0 {
		t.Errorf("its own: %v, %v", own, err)
	}
}

func TestParseVariants(t *testing.T) {
	got, err := ParseVariants([]string{"enforce", " absent", "enforce"})
	if err != nil || len(got) != 3 || got[0] != Native || got[1] != Absent || got[2] != Enforce {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range [][]string{nil, {"native"}, {"enforced"}} {
		if got, err := ParseVariants(bad); err == nil {
			t.Errorf("%v gave %v", bad, got)
		}
	}
}

func TestSetupsBounds(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Setup)
		good   bool
	}{
		{"the default", func(*Setup) {}, true},
		{"least stream", func(s *Setup) { s.StreamBytes = 16 * mib }, true},
		{"a smaller stream", func(s *Setup) { s.StreamBytes = 16*mib - 1 }, false},
		{"a rate too low", func(s *Setup) { s.StreamRate = 1e6 - 1 }, false},
		{"less warm-up", func(s *Setup) { s.WarmBytes = 16*mib - 1 }, false},
		{"no jobs", func(s *Setup) { s.JobBytes = 0 }, true},
		{"a tiny job", func(s *Setup) { s.JobBytes = mib - 1 }, false},
		{"more than the disk holds", func(s *Setup) { s.StreamBytes = 6 << 30 }, false},
		{"native alone", func(s *Setup) { s.Variants = []Variant{Native} }, false},
		{"no native", func(s *Setup) { s.Variants = []Variant{Absent, Enforce} }, false},
		{"dirty limits", func(s *Setup) { s.DirtyBackgroundBytes = s.DirtyBytes }, false},
	} {
		s := DefaultSetup()
		c.change(&s)
		if err := s.Validate(); (err == nil) != c.good {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestStreamBytesAreAtLeastWhatWasAskedFor(t *testing.T) {
	for _, total := range []int64{1, mib, 10 << 30, 10<<30 + 1} {
		for _, rounds := range []int{1, 3, 10} {
			got := StreamBytesFor(total, rounds)
			if all := got * int64(len(Streams)*rounds); all < total || all > total+int64(len(Streams)*rounds)*mib || got%mib != 0 {
				t.Errorf("%d in %d rounds: %d", total, rounds, got)
			}
		}
	}
}
