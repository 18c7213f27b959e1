package ladder

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

func machine(available ...Mechanism) Machine {
	m := Machine{Gate: {Why: "the kernel does not report pre-content events of fanotify; Linux 6.14 or later is needed"}}
	for _, a := range available {
		m[a] = Availability{OK: true}
	}
	return m
}

// The file testdata/decisions.txt lists the decisions of all cases, for people to read.
func TestDecisions(t *testing.T) {
	limited := Hold{Limit: 20e6, Marks: true, Cgroup: true, Writeback: true}
	with := func(change func(*Hold)) Hold { h := limited; change(&h); return h }
	all := machine(All()...)
	var b strings.Builder
	for _, c := range []struct {
		name string
		hold Hold
		on   Machine
	}{
		{"a limit, everything is there", limited, all},
		{"a weight, everything is there", with(func(h *Hold) { h.Weight, h.Limit = 10, 0 }), all},
		{"charged by the arbiter", with(func(h *Hold) { h.Arbiter = true }), all},
		{"neither weight nor limit", with(func(h *Hold) { h.Limit = 0 }), all},
		{"no marks on this file system", with(func(h *Hold) { h.Marks, h.WhyNot = false, "tmpfs has no pre-content events" }), all},
		{"an older kernel with cgroup v2", limited, machine(CgroupV2, Freezer)},
		{"the same without the memory controller", with(func(h *Hold) { h.Writeback = false }), machine(CgroupV2)},
		{"the same, a weight without bfq", with(func(h *Hold) { h.Weight, h.Limit = 10, 0 }), machine(CgroupV2, Freezer)},
		{"the same, a weight and a limit without bfq", with(func(h *Hold) { h.Weight = 10 }), machine(CgroupV2)},
		{"the same, a weight with bfq", with(func(h *Hold) { h.Weight, h.Limit, h.Weights = 10, 0, true }), machine(CgroupV2)},
		{"cgroup v1", limited, machine(CgroupV1, Freezer)},
		{"cgroup v1, a weight and a limit without bfq", with(func(h *Hold) { h.Weight = 10 }), machine(CgroupV1)},
		{"processes in a shared cgroup", with(func(h *Hold) { h.Cgroup = false }), machine(CgroupV2, CgroupV1, Freezer)},
		{"an older kernel, processes in a shared cgroup", with(func(h *Hold) { h.Cgroup = false }), machine(CgroupV2, GateReads, Freezer)},
		{"the same, no marks on this file system", with(func(h *Hold) { h.Cgroup, h.Marks, h.WhyNot = false, false, "tmpfs has no marks" }), machine(CgroupV2, GateReads, Freezer)},
		{"a service's own files", with(func(h *Hold) { h.Service = true }), all},
		{"a service's own files, without a gate", with(func(h *Hold) { h.Service = true }), machine(CgroupV2, CgroupV1, Freezer)},
		{"only the freezer", limited, machine(Freezer)},
		{"only the freezer, a DataNode", with(func(h *Hold) { h.Protected = true }), machine(Freezer)},
		{"only the freezer, a weight", with(func(h *Hold) { h.Weight, h.Limit = 10, 0 }), machine(Freezer)},
		{"nothing", limited, nil},
		{"a connection", with(func(h *Hold) { h.Connection = true }), all},
		{"a connection, no access to the process", with(func(h *Hold) { h.Connection = true }), machine(Shaper)},
		{"a connection, a weight", with(func(h *Hold) { h.Connection, h.Weight, h.Limit = true, 10, 0 }), all},
		{"a connection of bytes that are charged", with(func(h *Hold) { h.Connection, h.Arbiter = true, true }), all},
	} {
		fmt.Fprintf(&b, "%s\n", c.name)
		steps := Choose(c.hold, c.on)
		for _, s := range steps {
			taken := "pass"
			if s.Taken {
				taken = "take"
			}
			fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("    %s %-12s  %s", taken, s.Mechanism, s.Why), " "))
		}
		if _, ok := Taken(steps); !ok {
			fmt.Fprintln(&b, "    nothing holds it")
		}
		if c.hold.Arbiter {
			if m, ok := Taken(steps); ok {
				t.Errorf("%s: %s holds bytes that the arbiter holds already", c.name, m)
			}
		}
	}
	golden := filepath.Join("testdata", "decisions.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s differs; after a change of the rules, rewrite it with `go test ./core/ladder -update`. Now:\n%s", golden, b.String())
	}
}

// Whatever the machine has, at most one mechanism is taken, it is the last step, it is available,
// and it never holds what the arbiter holds already.
func TestAtMostOneMechanismHolds(t *testing.T) {
	mechanisms := All()
	for bits := range 1 << (7 + len(mechanisms)) {
		on := func(n int) bool { return bits>>n&1 == 1 }
		h := Hold{Connection: on(0), Arbiter: on(1), Marks: on(2), Cgroup: on(3), Weights: on(4), Protected: on(5), Limit: 1}
		if on(6) {
			h.Weight, h.Limit = 1, 0
		}
		m := Machine{}
		for i, r := range mechanisms {
			m[r] = Availability{OK: on(7 + i)}
		}
		steps := Choose(h, m)
		for i, s := range steps {
			if s.Taken && (i != len(steps)-1 || h.Arbiter || !m[s.Mechanism].OK || s.Mechanism == Freezer && h.Protected) {
				t.Fatalf("%+v on %v: %+v", h, m, steps)
			}
			if !s.Taken && s.Why == "" && !s.Mechanism.IsGate() {
				t.Fatalf("%+v on %v: no reason in %+v", h, m, steps)
			}
		}
	}
}

// A process whose rate is proportional to its duty settles at its limit. A process that has stopped its
// I/O gets its time back.
func TestDuty(t *testing.T) {
	const speed, limit, least = 100e6, 20_000_000, 0.05
	duty := 1.0
	for range 4 {
		duty = Duty(duty, duty*speed, limit, least)
	}
	if math.Abs(duty-0.2) > 1e-9 {
		t.Errorf("after 4 periods: %v", duty)
	}
	for _, c := range []struct{ now, rate, want float64 }{
		{1, 1e12, 0.5},     // halved at most
		{0.06, 1e12, 0.05}, // not below the least
		{0.1, 0, 0.2},      // idle: doubled
		{0.9, 0, 1},
		{0.3, 1, 0.6},
		{1, 1e6, 1},
	} {
		if got := Duty(c.now, c.rate, limit, least); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("duty %v at %v B/s: %v, want %v", c.now, c.rate, got, c.want)
		}
	}
}
