package reserve

import (
	"strings"
	"testing"
)

func TestParsePart(t *testing.T) {
	for text, want := range map[string]float64{"40%": 0.4, " 12.5 % ": 0.125, "100%": 1, "0.1%": 0.001} {
		if part, ok, err := ParsePart(text); part != want || !ok || err != nil {
			t.Errorf("%q: %v, %v, %v", text, part, ok, err)
		}
	}
	for _, text := range []string{"%", "0%", "-1%", "101%", "x%", "NaN%", "Inf%", "4 0%"} {
		if part, ok, err := ParsePart(text); part != 0 || !ok || err == nil {
			t.Errorf("%q: %v, %v, %v", text, part, ok, err)
		}
	}
	if _, ok, err := ParsePart("20MiB"); ok || err != nil {
		t.Error("bytes were taken for a part")
	}
}

func TestRate(t *testing.T) {
	for _, r := range []Rate{{}, {Bytes: 1 << 10}, {Bytes: 1 << 40}, {Part: MinPart}, {Part: MaxPart}, {Part: 0.5, Strict: true}, {Bytes: 1 << 20, Strict: true}} {
		if err := r.Validate(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, r := range []Rate{{Bytes: 1, Part: 0.1}, {Bytes: -1}, {Bytes: 1<<10 - 1}, {Bytes: 1<<40 + 1}, {Part: -0.1}, {Part: MaxPart + 0.001}, {Part: MinPart / 2}, {Strict: true}} {
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "reserve") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if (Rate{Bytes: 5}).Within(4) == nil || (Rate{Bytes: 5}).Within(5) != nil || (Rate{Bytes: 5}).Within(0) != nil || (Rate{Part: 0.5}).Within(1) != nil {
		t.Error("Within")
	}
	for r, want := range map[Rate]string{{}: "", {Bytes: 10 << 20}: "10.0 MiB/s", {Part: 0.125}: "12.5 % of the device's time", {Part: 0.4, Strict: true}: "40 % of the device's time, strict"} {
		if r.String() != want {
			t.Errorf("%q, want %q", r, want)
		}
	}
}

func FuzzParsePart(f *testing.F) {
	f.Add("40%")
	f.Add("1e-9%")
	f.Add("0x1p-2%")
	f.Fuzz(func(t *testing.T, text string) {
		if part, ok, err := ParsePart(text); err == nil && ok && !(part > 0 && part <= 1) {
			t.Errorf("%q: %v", text, part)
		}
	})
}
