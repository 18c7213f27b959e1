package overhead

import (
	"testing"
	"time"
)

func TestParseAnswer(t *testing.T) {
	took, bytes, err := parseAnswer("1500000000 1048576")
	if err != nil || took != 1500*time.Millisecond || bytes != mib {
		t.Errorf("%v, %d, %v", took, bytes, err)
	}
	for _, bad := range []string{"", "1", "0 2", "-1 2", "1 -2", "1 2 3", "1 2x", "x 2", "99999999999999999999 1"} {
		if took, bytes, err := parseAnswer(bad); err == nil {
			t.Errorf("%q gave %v, %d", bad, took, bytes)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	for _, s := range []string{"", "1", "1 2", "0 2", "-1 2", "1 -2", "1 2 3", "x", "99999999999999999999 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if took, bytes, err := parseAnswer(s); err == nil && (took <= 0 || bytes < 0) {
			t.Errorf("%q gave %v, %d", s, took, bytes)
		}
	})
}

func TestCompilersAreToldApart(t *testing.T) {
	for comm, want := range map[string]bool{"C1 CompilerThre": true, "C2 CompilerThre": true, "DataXceiver for": false, "": false} {
		if isCompiler(comm) != want {
			t.Errorf("%q: %v", comm, !want)
		}
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
