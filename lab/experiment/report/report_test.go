package report

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/lab/experiment/claims"
)

func TestReport(t *testing.T) {
	r := Report{Headline: "1 < 2", About: "a & b", Setup: map[string]int{"nodes": 7},
		Claims: []claims.Claim{claims.Of("delay", "ms", 1, 2, 4).AtMost(1), claims.Of("gain", "ratio", 3).AtLeast(2), claims.Of("wait", "ms", 5)},
		Table:  func(w io.Writer) error { _, err := io.WriteString(w, "the table\n"); return err }}
	var b bytes.Buffer
	if err := r.Write(&b, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"<h1>1 &lt; 2</h1>", "1970-01-01 00:00 UTC. a &amp; b", "the table\n", "&#34;nodes&#34;: 7",
		"<td>delay</td><td>ms</td><td>2</td><td>1 to 4</td><td>3</td>\n<td class=\"bad\">at most 1</td>", "<td>at least 2</td>", "<td></td>"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if n := strings.Count(page, "<svg"); n != 2 {
		t.Errorf("%d charts, want one for ms and one for the ratio", n)
	}
	if err := r.WriteFile(""); err != nil {
		t.Error(err)
	}
	if err := r.WriteFile(filepath.Join(t.TempDir(), "page.html")); err != nil {
		t.Error(err)
	}
}
