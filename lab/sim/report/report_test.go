package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"penstock/lab/sim"
)

func play(t *testing.T, file string) Report {
	t.Helper()
	s, err := sim.Load("../scenarios/" + file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Play(3, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Report{r}
}

// TestReports: each of the three forms contains everything, and two runs with the same seed give
// the same bytes.
func TestReports(t *testing.T) {
	for file, want := range map[string]struct {
		charts int
		words  []string
	}{
		"broker-outage.yaml": {2, []string{"seed 3", "30 nodes", "local shares", "broker down", "misplaced"}},
		"swim.yaml":          {2, []string{"seed 3", "8 nodes", "50 of 50", "coordinated", "fifo", "below 100 MB", "average"}},
	} {
		t.Run(file, func(t *testing.T) {
			var html, table, text [2]bytes.Buffer
			for i := range 2 {
				r := play(t, file)
				if err := errors.Join(r.WriteHTML(&html[i]), r.WriteTable(&table[i]), r.WriteJSON(&text[i])); err != nil {
					t.Fatal(err)
				}
			}
			for name, out := range map[string][2]bytes.Buffer{"html": html, "table": table, "json": text} {
				if !bytes.Equal(out[0].Bytes(), out[1].Bytes()) {
					t.Errorf("%s: two runs with the same seed differ", name)
				}
			}
			page := html[0].String()
			if n := strings.Count(page, "<svg"); n != want.charts {
				t.Errorf("%d charts, want %d", n, want.charts)
			}
			for _, w := range want.words {
				if !strings.Contains(page, w) {
					t.Errorf("the page lacks %q", w)
				}
			}
			for _, w := range want.words[1:] {
				if !strings.Contains(table[0].String(), w) {
					t.Errorf("the table lacks %q", w)
				}
			}
			from := strings.Index(page, "<svg")
			svg := xml.NewDecoder(strings.NewReader(page[from : strings.Index(page, "</svg>")+6]))
			for {
				if _, err := svg.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("the first chart: %v", err)
				}
			}
			var back sim.Result
			if err := json.Unmarshal(text[0].Bytes(), &back); err != nil || back.Seed != 3 || len(back.Windows)+len(back.Jobs) == 0 {
				t.Errorf("the JSON: %v", err)
			}
		})
	}
}

// TestReportsOfWhatIsEmpty: runs without service, and runs in which no job ended.
func TestReportsOfWhatIsEmpty(t *testing.T) {
	for _, r := range []*sim.Result{
		{Title: "<b>nothing</b>", Windows: []sim.Window{{To: 1}}, Faults: []string{"no window is judged"}},
		{Title: "no ends", Jobs: []sim.Job{{Name: "a"}}, Summaries: []sim.Summary{{Way: "fifo", Of: "average"}}, Good: true},
	} {
		var out bytes.Buffer
		if err := errors.Join(Report{r}.WriteHTML(&out), Report{r}.WriteTable(&out)); err != nil {
			t.Errorf("%s: %v", r.Title, err)
		}
		if r.Title == "no ends" && strings.Count(out.String(), "fifo only 0 of 1 ended") != 2 {
			t.Errorf("the page or the table does not say that no job ended:\n%s", out.String())
		}
		if strings.Contains(out.String(), "<title><b>") {
			t.Error("the title is not escaped")
		}
	}
}

// TestChecksAreShown: the table and the page show what was expected of single applications, and what was seen.
func TestChecksAreShown(t *testing.T) {
	node := 3
	r := Report{&sim.Result{Title: "checks", Good: true, Checks: []sim.Check{
		{Application: "rated", From: 1, To: 2, Node: &node, Windows: 8, Lowest: 2e6, Highest: 3e6, Kept: 0.999, States: []string{"queued", "admitted"}},
		{Application: "small", From: 5, To: 9, Reads: 200, P99: 0.0421}}}}
	var table, page bytes.Buffer
	if err := errors.Join(r.WriteTable(&table), r.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rated at node 3", "2.0 to 3.0 MB/s, within the bounds in 99 % of 8 windows; guaranteed rate queued, then admitted", "99 % of 200 small reads within 42.1 ms", "2 expectations of single applications"} {
		if !strings.Contains(table.String(), want) || !strings.Contains(page.String(), want) {
			t.Errorf("%q is missing:\n%s", want, table.String())
		}
	}
}
