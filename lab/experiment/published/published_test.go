package published

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/lab/experiment/claims"
)

const good = `{"order": 1, "title": "T", "shows": "S", "setup": "U", "command": "C", "commit": "", "date": "D", "lost": ["L"], "more": "",
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
	for _, want := range []string{"0 of 1 figures with a goal meet it", "## T\n\nS", "| n | 0.967 | 0.9 to 1 | 5 | at least 0.97 | no | s |", "- L\n", "Repeat: `C`"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestWrongResultsAreRefused(t *testing.T) {
	for _, change := range [][2]string{
		{`"met": false`, `"met": true`}, {`"low": 0.9`, `"low": 0.98`}, {`"title": "T"`, `"title": ""`}, {`"unit": "ratio"`, `"unit": ""`},
		{`"runs": 5`, `"rums": 5`}, {`"goal": 0.97`, `"goal": null`},
	} {
		if _, err := load(t, strings.Replace(good, change[0], change[1], 1)); err == nil {
			t.Errorf("%s was accepted", change[1])
		}
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
