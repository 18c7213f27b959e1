package isolation

import (
	"strings"
	"testing"
)

func names(phases []Phase) string {
	var out []string
	for _, p := range phases {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func TestParsePhases(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"alone,floor,native,sfqd2", "alone floor native-mq-deadline native-bfq native-none sfqd2"},
		{"native-bfq,native", "native-bfq native-mq-deadline native-none"}, // each once
		{"penstock, sfqd-4,sfqd-04", "sfqd2 sfqd-4"},
		{"sfqd-4,sfqd", "sfqd-4 sfqd-1 sfqd-2 sfqd-8 sfqd-12"},
		{"drr,drr-2,drr-64", "drr-2 drr-64"},
		{"throttler,throttler-10000", "throttler-2 throttler-4 throttler-6 throttler-8 throttler-10000"},
		{"all", "alone floor native-mq-deadline native-bfq native-none throttler-2 throttler-4 throttler-6 throttler-8 " +
			"drr-2 sfqd-1 sfqd-2 sfqd-4 sfqd-8 sfqd-12 sfqd2"},
	} {
		phases, err := ParsePhases(strings.Split(c.in, ","), testSetup())
		if err != nil || names(phases) != c.want {
			t.Errorf("ParsePhases(%q) = %q, %v; want %q", c.in, names(phases), err, c.want)
		}
	}
	s := testSetup()
	s.SetIntermediate(true)
	s.Both = true
	for _, c := range []struct{ in, want string }{
		{"cgroup,cgroup-weights-8,cgroup-caps-1", "cgroup-weights-100 cgroup-caps-1 cgroup-weights-8"},
		{"all", "alone aggressor-alone floor native-mq-deadline native-bfq native-none throttler-2 throttler-4 throttler-6 throttler-8 " +
			"cgroup-weights-100 cgroup-caps-1 drr-2 sfqd-1 sfqd-2 sfqd-4 sfqd-8 sfqd-12 sfqd2"},
	} {
		if phases, err := ParsePhases(strings.Split(c.in, ","), s); err != nil || names(phases) != c.want {
			t.Errorf("with intermediate data: ParsePhases(%q) = %q, %v; want %q", c.in, names(phases), err, c.want)
		}
	}
	for _, bad := range []string{"cgroup-weights-0", "cgroup-weights-1001", "cgroup-caps-0", "cgroup-1", "cgroups"} {
		if _, err := ParsePhases([]string{bad}, s); err == nil {
			t.Errorf("ParsePhases(%q) was accepted", bad)
		}
	}
	for _, bad := range []string{"", "cgroup", "cgroup-caps-1", "nativ", "native-cfq", "sfqd-0", "sfqd-65", "sfqd-x", "sfqd-", "drr-0", "drr-65", "throttler-0", "throttler-10001", "throttler-1.5"} {
		if _, err := ParsePhases([]string{bad}, testSetup()); err == nil {
			t.Errorf("ParsePhases(%q) was accepted", bad)
		}
	}
}

func TestPhaseKinds(t *testing.T) {
	s := testSetup()
	s.SetIntermediate(true)
	phases, err := ParsePhases([]string{"alone", "floor", "native-bfq", "sfqd2", "sfqd-3", "drr-5", "throttler-4",
		"aggressor-alone", "cgroup-weights-8", "cgroup-caps-2"}, s)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		against, elsewhere, native, governed, adaptive bool
		depth, cap                                     int
		algorithm                                      string
		unprotected                                    bool
		weight, groupCap                               int
	}{
		{},
		{against: true, elsewhere: true},
		{against: true, native: true},
		{against: true, governed: true, adaptive: true, algorithm: "sfqd2"},
		{against: true, governed: true, depth: 3, algorithm: "sfqd"},
		{against: true, governed: true, depth: 5, algorithm: "drr"},
		{against: true, cap: 4},
		{against: true, unprotected: true},
		{against: true, weight: 8},
		{against: true, groupCap: 2},
	} {
		p := phases[i]
		if p.Against != want.against || p.Elsewhere != want.elsewhere || p.Native() != want.native ||
			p.Governed != want.governed || p.Adaptive() != want.adaptive || p.Depth != want.depth ||
			p.Cap != want.cap || p.Algorithm != want.algorithm || p.Unprotected != want.unprotected ||
			p.GroupWeight != want.weight || p.GroupCap != want.groupCap || p.Grouped() != (want.weight+want.groupCap > 0) {
			t.Errorf("%s: %+v, want %+v", p.Name, p, want)
		}
	}
}

func TestInterleave(t *testing.T) {
	phases, _ := ParsePhases([]string{"alone", "sfqd2"}, testSetup())
	var got []string
	for _, turn := range Interleave(phases, 2) {
		got = append(got, turn.Phase.Name, string(rune('0'+turn.Run)))
	}
	if s := strings.Join(got, " "); s != "alone 1 sfqd2 1 alone 2 sfqd2 2" {
		t.Errorf("order: %s", s)
	}
}
