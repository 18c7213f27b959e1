package overhead

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// What a process's children have used counts, whether they live, have been waited for,
// or have ended without.
func TestFamilyCountsTheLivingAndTheDead(t *testing.T) {
	const work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
	// The first is waited for; the second is not, by cat; the third waits for a word.
	cmd := exec.Command("bash", "-c", "bash -c '"+work+"'; bash -c '"+work+"' & bash -c '"+work+"; echo; read x' <&0 & exec cat >/dev/null")
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
	defer func() { in.Close(); cmd.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	used, living, err := family(cmd.Process.Pid)
	for deadline := time.Now().Add(time.Minute); err == nil && living > 1 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		used, living, err = family(cmd.Process.Pid)
	}
	if err != nil || living != 1 {
		t.Fatalf("%d children live, %v", living, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	head, err := parseStat(string(stat))
	if err != nil || head.children < tick || used < head.children+2*tick || used > time.Minute {
		t.Errorf("%v in all, %v of the one that was waited for, %v", used, head.children, err)
	}
	in.Close()
	cmd.Wait()
	if _, _, err := family(cmd.Process.Pid); err == nil {
		t.Error("the family of a process that is gone")
	}
}

func TestParseStat(t *testing.T) {
	m, err := parseStat("7 (a) b (c) S 3 7 7 0 -1 0 1 2 3 4 11 22 33 44 20 0 1 0 9")
	want := member{pid: 7, parent: 3, state: "S", own: 330 * time.Millisecond, children: 770 * time.Millisecond}
	if err != nil || m != want {
		t.Errorf("%+v, %v", m, err)
	}
}

func FuzzParseStat(f *testing.F) {
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(own))
	for _, s := range []string{"", "7", "7 (x", "7 (x) S", "x (x) S 3 7 7 0 -1 0 1 2 3 4 11 22 33 44", "7 (x) S 3 7 7 0 -1 0 1 2 3 4 -1 22 33 99999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := parseStat(s); err == nil && (m.own < 0 || m.children < 0) {
			t.Errorf("%q gave %+v", s, m)
		}
	})
}

func TestParseMachine(t *testing.T) {
	used, err := parseMachine("cpu  1 2 4 1000 1000 8 16 1000 1000 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if err != nil || used != 310*time.Millisecond {
		t.Errorf("%v, %v", used, err)
	}
	if used, err := machineTime(); err != nil || used < time.Second {
		t.Errorf("this machine: %v, %v", used, err)
	}
}

func FuzzParseMachine(f *testing.F) {
	for _, s := range []string{"", "cpu", "cpu 1 2 3 4 5 6 7", "cpu -1 2 3 4 5 6 7", "intr 1 2 3 4 5 6 7", "cpu " + strings.Repeat("9223372036854775807 ", 8)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if used, err := parseMachine(s); err == nil && used < 0 {
			t.Errorf("%q gave %v", s, used)
		}
	})
}
