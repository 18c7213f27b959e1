package leadership

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/broker/zkclient"
)

func TestNextEpoch(t *testing.T) {
	for _, test := range []struct {
		last uint64
		now  time.Time
		want uint64
	}{
		{0, time.UnixMilli(1_700_000_000_000), 1_700_000_000_000},
		{1_700_000_000_000, time.UnixMilli(1_700_000_000_000), 1_700_000_000_001},
		{1_700_000_000_005, time.UnixMilli(1_600_000_000_000), 1_700_000_000_006}, // the clock was put back
		{7, time.UnixMilli(-5), 8},
	} {
		if got := NextEpoch(test.last, test.now); got != test.want {
			t.Errorf("after %d at %v: %d, want %d", test.last, test.now, got, test.want)
		}
	}
}

// TestStandalone: each start of a standalone broker has a larger epoch, even if the clock was put
// back.
func TestStandalone(t *testing.T) {
	dir := t.TempDir()
	last := uint64(0)
	for range 3 {
		a, err := OpenStandalone(dir, "here:1")
		if err != nil {
			t.Fatal(err)
		}
		s := a.State()
		if !s.Leading || s.Leader != "here:1" || s.Epoch <= last {
			t.Errorf("%+v after %d", s, last)
		}
		last = s.Epoch
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, epochFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("9000000000000000000\n") // from a clock far ahead
	if a, err := OpenStandalone(dir, ""); err != nil || a.State().Epoch != 9000000000000000001 {
		t.Errorf("%+v, %v", a, err)
	}
	for _, text := range []string{"", "x", "-1", "18446744073709551615"} {
		write(text)
		if _, err := OpenStandalone(dir, ""); err == nil || !strings.Contains(err.Error(), "is not an epoch") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.new-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestLease: a leader's lease ends by its own clock before the session can end, even if no code
// runs meanwhile.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const session = 6 * time.Second
		e := &Election{state: State{Leading: true, Leader: "here:1", Epoch: 3}, leaseEnd: time.Now().Add(zkclient.Lease(session))}
		time.Sleep(zkclient.Lease(session) - 1)
		if s := e.State(); !s.Leading {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Nanosecond)
		if s := e.State(); s.Leading || s.Leader != "" || s.Epoch != 3 {
			t.Errorf("after its lease: %+v", s)
		}
		if zkclient.Lease(session) > session-session/4 {
			t.Errorf("a lease of %v in a session of %v leaves less than half a tick", zkclient.Lease(session), session)
		}
	})
}

func TestSequence(t *testing.T) {
	names := []string{"zzz-0000000003", "aaa-0000000010", "mmm-0000000002", "stranger", "bbb--5"}
	slices.SortStableFunc(names, func(a, b string) int {
		if sequence(a) < sequence(b) {
			return -1
		}
		return 1
	})
	if names[0] != "mmm-0000000002" || names[1] != "bbb--5" && names[1] != "zzz-0000000003" {
		t.Errorf("%v", names)
	}
	if sequence("stranger") != 1<<63-1 || sequence("x-") != 1<<63-1 {
		t.Error("a name without a number is not last")
	}
}

// FuzzParse: any data in ZooKeeper is decoded to a valid record or an empty one.
func FuzzParse(f *testing.F) {
	f.Add(record{Epoch: 5, Name: "b", Address: "b:1"}.encode())
	f.Add([]byte(`{"epoch":-1}`))
	f.Add([]byte(`{"name":"` + strings.Repeat("n", maxNameBytes+1) + `"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := decodeRecord(text)
		if len(r.Name) > maxNameBytes || len(r.Address) > maxNameBytes {
			t.Errorf("%+v", r)
		}
		if again := decodeRecord(r.encode()); again != r {
			t.Errorf("%+v is %+v when written and read", r, again)
		}
	})
}
