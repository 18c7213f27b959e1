package monitor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const sample = "  446216   784926  9550688  4382310  1442493 1104294 58452008 21094630 3  1213416 25502660 0 0 0 0 11 22\n"

func TestParseStat(t *testing.T) {
	c, err := ParseStat(sample)
	want := Counters{Reads: 446216, Writes: 1442493, ReadBytes: 9550688 * 512, WrittenBytes: 58452008 * 512, InFlight: 3, Busy: 1213416 * time.Millisecond}
	if err != nil || c != want {
		t.Errorf("%+v, %v", c, err)
	}
	eleven := strings.TrimSpace(strings.Repeat("1 ", 11))
	if _, err := ParseStat(eleven); err != nil {
		t.Errorf("a kernel of 4.17 writes 11 fields: %v", err)
	}
	for _, bad := range []string{"", eleven[2:], strings.Replace(eleven, "1", "-1", 1), strings.Replace(eleven, "1", "x", 1),
		"1 1 9223372036854775807 1 1 1 1 1 1 1 1", "1 1 1 1 1 1 1 1 1 4294967296 1"} {
		if c, err := ParseStat(bad); err == nil {
			t.Errorf("%q gave %+v", bad, c)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add(sample)
	f.Add("0 0 0 0 0 0 0 0 0 0 0")
	f.Add("1 1 9223372036854775807 1 1 1 1 1 1 1 1")
	f.Add("x")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseStat(text)
		if err == nil && (c.ReadBytes < 0 || c.WrittenBytes < 0 || c.InFlight < 0 || c.Busy < 0 || c.Busy >= busyWrap) {
			t.Errorf("%q: %+v", text, c)
		}
	})
}

func FuzzParseScheduler(f *testing.F) {
	f.Add("none [mq-deadline] kyber bfq\n")
	f.Add("none\n")
	f.Add("[]")
	f.Fuzz(func(t *testing.T, text string) {
		inForce, all := ParseScheduler(text)
		if inForce != "" && !slices.Contains(all, inForce) {
			t.Errorf("%q: %q is in force but not in %q", text, inForce, all)
		}
	})
}

func TestReadsSysfs(t *testing.T) {
	sysfs := t.TempDir()
	queue := filepath.Join(sysfs, "block", "sdb", "queue")
	if err := os.MkdirAll(queue, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"../stat": sample, "scheduler": "none [mq-deadline] bfq\n", "nr_requests": "64\n", "read_ahead_kb": "128\n",
	} {
		if err := os.WriteFile(filepath.Join(queue, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := Read(sysfs, "sdb"); err != nil || c.InFlight != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Read(sysfs, "dev-0:24"); err == nil {
		t.Error("a file system without a device has counters")
	}
	q := ReadQueue(sysfs, "sdb")
	if q.Scheduler != "mq-deadline" || len(q.Schedulers) != 3 || q.Requests != 64 || q.ReadaheadKB != 128 || q.RequestKB != -1 {
		t.Errorf("%+v", q)
	}
}

func TestUtilisation(t *testing.T) {
	at := func(ms int64) Counters { return Counters{Busy: time.Duration(ms) * time.Millisecond} }
	for _, c := range []struct {
		before, after int64
		elapsed       time.Duration
		want          float64
	}{
		{0, 500, time.Second, 0.5},
		{0, 1001, time.Second, 1},            // the kernel rounds to ticks
		{1<<32 - 250, 250, time.Second, 0.5}, // wrapped
		{0, 500, 0, 0},
	} {
		if got := Utilisation(at(c.before), at(c.after), c.elapsed); got != c.want {
			t.Errorf("%d to %d ms in %v: %v", c.before, c.after, c.elapsed, got)
		}
	}
}

func TestForeign(t *testing.T) {
	type step struct{ device, own, transit, want int64 }
	for name, steps := range map[string][]step{
		"the device's past is nobody's":      {{5000, 0, 0, 0}, {5000, 0, 0, 0}},
		"all of it is foreign":               {{0, 0, 0, 0}, {300, 0, 0, 300}, {700, 0, 0, 400}},
		"none of it is":                      {{0, 0, 0, 0}, {300, 300, 0, 0}, {700, 700, 0, 0}},
		"in transit is not yet foreign":      {{0, 0, 0, 0}, {300, 200, 100, 0}, {300, 300, 0, 0}},
		"late by what is in transit":         {{0, 0, 0, 0}, {300, 0, 100, 200}, {300, 0, 0, 100}},
		"a backlog that drains is nothing":   {{0, 0, 0, 0}, {0, 0, 500, 0}, {500, 500, 0, 0}},
		"charged in excess hides at most it": {{0, 0, 0, 0}, {0, 500, 0, 0}, {100, 500, 0, 90}},
		"another device of the same name":    {{9000, 0, 0, 0}, {100, 0, 0, 0}, {150, 0, 0, 50}},
	} {
		var f Foreign
		for i, s := range steps {
			if got := f.Observe(s.device, s.own, s.transit, 10); got != s.want {
				t.Errorf("%s, step %d: %d bytes, want %d", name, i, got, s.want)
			}
		}
	}
}

// However the load is mixed and whatever is in transit: the count never exceeds the foreign
// bytes, and once nothing is in transit it equals them.
func TestForeignIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f Foreign
		var device, own, foreign, counted, uncharged int64
		f.Observe(0, 0, 0, 0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			more := rapid.Int64Range(0, 1000).Draw(t, "foreign")
			done := rapid.Int64Range(0, 1000).Draw(t, "done")
			foreign += more
			uncharged += done
			charge := rapid.Int64Range(0, uncharged).Draw(t, "charged")
			uncharged -= charge
			device, own = device+more+done, own+charge
			known := uncharged + rapid.Int64Range(0, 1000).Draw(t, "still to come")
			got := f.Observe(device, own, known, 0)
			if got < 0 {
				t.Fatalf("%d bytes", got)
			}
			if counted += got; counted > foreign {
				t.Fatalf("counted %d of %d", counted, foreign)
			}
		}
		counted += f.Observe(device, own+uncharged, 0, 0)
		if counted != foreign {
			t.Fatalf("counted %d of %d in the end", counted, foreign)
		}
	})
}
