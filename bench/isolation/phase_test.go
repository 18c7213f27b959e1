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
	} {
		phases, err := ParsePhases(strings.Split(c.in, ","))
		if err != nil || names(phases) != c.want {
			t.Errorf("ParsePhases(%q) = %q, %v; want %q", c.in, names(phases), err, c.want)
		}
	}
	for _, bad := range []string{"", "nativ", "native-cfq", "sfqd-0", "sfqd-65", "sfqd-x", "sfqd"} {
		if _, err := ParsePhases([]string{bad}); err == nil {
			t.Errorf("ParsePhases(%q) was accepted", bad)
		}
	}
}

func TestPhaseKinds(t *testing.T) {
	phases, err := ParsePhases([]string{"alone", "floor", "native-bfq", "sfqd2", "sfqd-3"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		against, elsewhere, native, governed, adaptive bool
		depth                                          int
	}{
		{},
		{against: true, elsewhere: true},
		{against: true, native: true},
		{against: true, governed: true, adaptive: true},
		{against: true, governed: true, depth: 3},
	} {
		p := phases[i]
		if p.Against != want.against || p.Elsewhere != want.elsewhere || p.Native() != want.native ||
			p.Governed != want.governed || p.Adaptive() != want.adaptive || p.Depth != want.depth {
			t.Errorf("%s: %+v, want %+v", p.Name, p, want)
		}
	}
}

func TestInterleave(t *testing.T) {
	phases, _ := ParsePhases([]string{"alone", "sfqd2"})
	var got []string
	for _, turn := range Interleave(phases, 2) {
		got = append(got, turn.Phase.Name, string(rune('0'+turn.Run)))
	}
	if s := strings.Join(got, " "); s != "alone 1 sfqd2 1 alone 2 sfqd2 2" {
		t.Errorf("order: %s", s)
	}
}
