package published

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/lab/experiment/claims"
)

const good = `{"order": 1, "title": "T", "shows": "S", "setup": "U", "command": "C", "commit": "0123abc", "date": "2026-11-23", "lost": ["L"], "more": "",
 "claims": [{"name": "n", "unit": "ratio", "value": 0.967, "low": 0.9, "high": 1, "runs": 5, "goal": 0.97, "higher_is_better": true, "met": false, "source": "s", "id": "a.b"}]}`

func load(t *testing.T, text string) ([]Result, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "r.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(dir)
}

func TestMarkdown(t *testing.T) {
	all, err := load(t, good)
	if err != nil {
		t.Fatal(err)
	}
	text := Markdown(all)
	for _, want := range []string{"Of 1 figures with a goal, 0 meet it with their median or mean, and 1 miss it.", "open: 0 of the 0, and 1 of the 1.", "## T\n\nS", "| n | 0.967 | 0.9 to 1 | 5 | at least 0.97 | no, interval crosses the goal | s |", "- L\n", "Repeat: `C`"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestWrongResultsAreRefused(t *testing.T) {
	for _, change := range [][2]string{
		{`"met": false`, `"met": true`}, {`"low": 0.9`, `"low": 0.98`}, {`"title": "T"`, `"title": ""`}, {`"unit": "ratio"`, `"unit": ""`},
		{`"runs": 5`, `"rums": 5`}, {`"goal": 0.97`, `"goal": null`}, {`"runs": 5`, `"runs": 0`}, {`"low": 0.9, "high": 1`, `"low": 0, "high": 0`},
		{`"commit": "0123abc"`, `"commit": ""`}, {`"commit": "0123abc"`, `"commit": "v1"`}, {`"date": "2026-11-23"`, `"date": "2026-11"`},
	} {
		if _, err := load(t, strings.Replace(good, change[0], change[1], 1)); err == nil {
			t.Errorf("%s was accepted", change[1])
		}
	}
}

// A figure of an earlier build may lack properties that were not recorded at the time.
func TestEarlierBuildsMayLackIntervals(t *testing.T) {
	text := good
	for _, change := range [][2]string{{`"low": 0.9, "high": 1, "runs": 5`, `"low": 0, "high": 0, "runs": 0`}, {`"commit": "0123abc"`, `"commit": ""`},
		{`"date": "2026-11-23"`, `"date": "2026-11"`}, {`"id": "a.b"`, `"id": "a.b", "build": "earlier build"`}} {
		text = strings.Replace(text, change[0], change[1], 1)
	}
	all, err := load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if want := "| n (earlier build) | 0.967 |  |  | at least 0.97 | no | s |"; !strings.Contains(Markdown(all), want) {
		t.Errorf("no %q in:\n%s", want, Markdown(all))
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 4. / 3: "1.333", 0.05: "0.05", 38: "38", 999.96: "1000", 12345: "12345", 12345.6: "12346", -1.31: "-1.31"} {
		if got := number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

// The chart is drawn from the figures. The same figures always give the same chart, because CI
// compares it.
func TestCharts(t *testing.T) {
	all, err := load(t, strings.Replace(good, `"id": "a.b"`, `"chart": "with it"`, 1))
	if err != nil {
		t.Fatal(err)
	}
	first, err := Charts(all)
	if err != nil || len(first) != 1 || !strings.Contains(string(first["r"]), "with it") {
		t.Fatalf("%d charts, %v: %s", len(first), err, first["r"])
	}
	for range 5 {
		if again, err := Charts(all); err != nil || !bytes.Equal(again["r"], first["r"]) {
			t.Fatalf("another chart of the same figures (%v)", err)
		}
	}
	if none, err := Charts([]Result{{Claims: []Figure{{}}}}); err != nil || len(none) != 0 {
		t.Errorf("charts without rows: %v, %v", none, err)
	}
}

func TestCheckFindsDrift(t *testing.T) {
	all := []Result{{Claims: []Figure{
		{Claim: claims.Claim{Value: 0.967, Unit: "ratio"}, ID: "a"}, {Claim: claims.Claim{Value: 1885, Unit: "files"}, ID: "b"},
	}}}
	for text, wrong := range map[string]int{
		"takes 0.97<!-- a --> of it": 0, "97 %<!-- a -->": 0, "96.7 %<!-- a -->": 0, "1,885<!-- b --> files": 0,
		"takes 0.96<!-- a -->": 1, "98 %<!-- a -->": 1, "1<!-- c -->": 1, "none <!-- a -->": 1, "": 0,
	} {
		if got := Check(text, all); len(got) != wrong {
			t.Errorf("%q: %q", text, got)
		}
	}
}
