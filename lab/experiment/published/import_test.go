package published

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"penstock/lab/experiment/claims"
)

func sample() Result {
	figure := func(name, build, id string) Figure {
		return Figure{Claim: claims.Of(name, "s", 1, 2, 3), Build: build, ID: id}
	}
	return Result{Title: "T", Shows: "S", Setup: "U", Command: "C", Commit: "0123abc", Date: "2026-11-20", Lost: []string{},
		Claims: []Figure{figure("a", "", "x.a"), figure("b", "", ""), figure("a", "earlier build", ""), figure("old", "earlier build", "x.old")}}
}

func TestImport(t *testing.T) {
	measured := Measurement{Claims: []claims.Claim{claims.Of("a", "ms", 7, 8, 9).AtMost(10), claims.Of("old", "s", 4), claims.Of("new", "s", 5)}}
	for _, c := range []struct {
		name    string
		choices Choices
		want    []string // name, value and build of each figure
		said    []string
		wrong   string
	}{
		{"same commit", Choices{Commit: "0123abc", Date: "2026-11-24"}, []string{"a 8 x.a", "b 2", "a 2 earlier build", "old 2 earlier build x.old"},
			[]string{"replaced: a: 8 instead of 2", "not published: old", "not published: new", "kept: b", "kept: a", "kept: old"}, ""},
		{"another commit", Choices{Commit: "fedcba9", Date: "2026-11-24"}, nil, nil, "lacks figures of commit 0123abc"},
		{"another commit, marked", Choices{Commit: "fedcba9", Date: "2026-11-24", MarkEarlier: true}, []string{"a 8 x.a", "b 2 earlier build", "a 2 earlier build", "old 2 earlier build x.old"},
			[]string{"kept, and marked as of an earlier build: b"}, ""},
		{"added", Choices{Commit: "0123abc", Date: "2026-11-24", Add: []string{"old"}}, []string{"a 8 x.a", "b 2", "a 2 earlier build", "old 2 earlier build", "old 4 x.old"},
			[]string{"added: old: 4"}, ""},
		{"unknown", Choices{Commit: "0123abc", Date: "2026-11-24", Add: []string{"c"}}, nil, nil, `no claim "c"`},
		{"no commit", Choices{Commit: "v1", Date: "2026-11-24", MarkEarlier: true}, nil, nil, "no commit"},
		{"no day", Choices{Commit: "0123abc", Date: "yesterday"}, nil, nil, "is not a date"},
	} {
		r := sample()
		said, err := r.Import(measured, c.choices)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, f := range r.Claims {
			got = append(got, strings.Join(strings.Fields(f.Name+" "+number(f.Value)+" "+f.Build+" "+f.ID), " "))
		}
		if !slices.Equal(got, c.want) || r.Commit != c.choices.Commit || r.Date != c.choices.Date {
			t.Errorf("%s: %q of %s, %s, want %q", c.name, got, r.Commit, r.Date, c.want)
		}
		if f := r.Claims[0]; f.Unit != "ms" || f.Low != 7 || f.High != 9 || f.Goal == nil || *f.Goal != 10 {
			t.Errorf("%s: not verbatim: %+v", c.name, f)
		}
		for _, line := range c.said {
			if !slices.Contains(said, line) {
				t.Errorf("%s: no %q in %q", c.name, line, said)
			}
		}
	}
	r := sample()
	if _, err := r.Import(Measurement{Claims: []claims.Claim{claims.Of("new", "s", 1)}}, Choices{Commit: "0123abc"}); err == nil || !strings.Contains(err.Error(), "--add") {
		t.Errorf("nothing to import: %v", err)
	}
}

func TestCommitOfAMeasurement(t *testing.T) {
	for _, c := range []struct {
		m    Measurement
		want string // "": refused
	}{
		{Measurement{Build: "0123abc"}, "0123abc"}, {Measurement{Builds: []string{"v1.2-34-g0123abc"}}, "0123abc"},
		{Measurement{Build: "0123abc-dirty"}, ""}, {Measurement{Build: "dev"}, ""}, {Measurement{}, ""}, {Measurement{Builds: []string{"0123abc", "fedcba9"}}, ""},
	} {
		got, err := c.m.Commit()
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), "--commit") {
			t.Errorf("%+v: %q, %v, want %q", c.m, got, err, c.want)
		}
	}
}

func TestReadMeasurementAndWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	for text, good := range map[string]bool{
		`{"claims": [{"name": "a"}], "build": "0123abc", "setup": {}}`: true,
		`{"claims": [{"name": "a"}, {"name": "a"}]}`:                   false,
		`{"claims": []}`: false, `{}`: false, `phases`: false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadMeasurement(file); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
	want := sample()
	want.Setup = "a < b & c"
	if err := want.Write(file); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(file)
	if got, err := Read(file); err != nil || len(got.Claims) != len(want.Claims) || !strings.Contains(string(text), want.Setup) {
		t.Errorf("%v: %s", err, text)
	}
}
