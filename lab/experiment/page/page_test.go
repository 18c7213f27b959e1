package page

import (
	"bytes"
	"html/template"
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	report := Must(`<p>{{twice .}}</p>`, template.FuncMap{"twice": func(s string) string { return s + s }})
	for pending, reloads := range map[int]bool{0: false, 3: true} {
		var b bytes.Buffer
		if err := report.Write(&b, Page{Headline: "1 < 2", Pending: pending, Body: "<b>"}); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		if got := strings.Contains(page, `http-equiv="refresh"`) && strings.Contains(page, "Runs to do: 3"); got != reloads {
			t.Errorf("%d runs to do: reloads %v", pending, got)
		}
		for _, want := range []string{"<title>1 &lt; 2</title>", "<h1>1 &lt; 2</h1>", "<p>&lt;b&gt;&lt;b&gt;</p>", "prefers-color-scheme: dark"} {
			if !strings.Contains(page, want) {
				t.Errorf("no %q in the page", want)
			}
		}
	}
}
