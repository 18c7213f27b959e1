package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
)

func sampleBars() Bars {
	return Bars{Title: "Run time & more", X: "seconds", Width: 460, Rows: []Row{
		{Name: "alone", Bars: []Bar{{Kind: "without neighbour", Colour: Grey, Value: 72, Low: 71, High: 74, Runs: 3, Label: "72 s"}}},
		{Name: "Hadoop today", Bars: []Bar{{Kind: "Hadoop", Colour: Orange, Value: 101, Low: 90, High: 120, Runs: 1, Label: "101 s, 1.40x"}}},
		{Name: "with Penstock", Bars: []Bar{{Kind: "Penstock", Colour: Blue, Value: 75, Label: "75 s"}, {Kind: "Hadoop", Colour: Orange, Value: 80}}},
	}}
}

func sampleLines() Lines {
	curve := func(f float64) []Point { return []Point{{0, 0}, {10, f}, {20, 2 * f}} }
	panel := func(title string, f float64) Panel {
		return Panel{Title: title, X: "seconds", Y: "MB/s", Marks: []float64{5},
			Lines: []Line{{Name: "WordCount", Points: curve(f), Dots: true, Rings: []Point{{10, f}}}, {Name: "TeraGen", Colour: Orange, Points: curve(f / 2), Dashed: true}}}
	}
	return Lines{Title: "Throughput", Panels: []Panel{panel("one", 1), panel("two", 10), panel("three", 3)}, Columns: 2, Shared: true, Width: 240, Height: 130}
}

// texts returns the chart's texts in the order in which they are drawn.
func texts(t *testing.T, c Chart) (all []string) {
	t.Helper()
	file, err := File(c)
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(string(file)))
	for in := false; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			in = e.Name.Local == "text"
		case xml.EndElement:
			in = false
		case xml.CharData:
			if in {
				all = append(all, string(e))
			}
		}
	}
}

func count(all []string, want string) (n int) {
	for _, s := range all {
		if s == want {
			n++
		}
	}
	return n
}

func TestOneLegendAndOneAxis(t *testing.T) {
	lines := texts(t, sampleLines())
	for text, want := range map[string]int{"WordCount": 1, "TeraGen": 1, "seconds": 2, "MB/s": 2, "one": 1, "two": 1, "three": 1} {
		if got := count(lines, text); got != want {
			t.Errorf("%q is drawn %d times, want %d", text, got, want)
		}
	}
	bars := texts(t, sampleBars())
	for _, text := range []string{"without neighbour", "Hadoop", "Penstock", "Hadoop today", "101 s, 1.40x"} {
		if got := count(bars, text); got != 1 {
			t.Errorf("%q is drawn %d times, want once", text, got)
		}
	}
}

// A text has the length of the layout, so that no other font is cut off.
func TestTextsKeepTheirLength(t *testing.T) {
	file, err := File(sampleBars())
	if err != nil {
		t.Fatal(err)
	}
	all, fitted := strings.Count(string(file), "<text "), regexp.MustCompile(`<text textLength="[0-9.]+" `).FindAll(file, -1)
	if all == 0 || len(fitted) != all {
		t.Errorf("%d of %d texts have a length", len(fitted), all)
	}
}

// A single run has no interval, regardless of Low and High.
func TestWhiskersNeedMoreThanOneRun(t *testing.T) {
	lines := regexp.MustCompile(`<path [^>]*fill:none;stroke:#1B1B1B`)
	drawn := func(runs int) int {
		file, err := File(Bars{X: "s", Width: 300, Rows: []Row{{Name: "a", Bars: []Bar{{Value: 5, Low: 1, High: 5, Runs: runs}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return len(lines.FindAll(file, -1))
	}
	one, none, two := drawn(1), drawn(0), drawn(2)
	if one != none || two != one+3 {
		t.Errorf("lines in ink: %d without a run, %d with one, %d with two", none, one, two)
	}
}

// Each drawn colour has a different one on a dark page, and all light colours are distinct.
func TestColoursOnADarkPage(t *testing.T) {
	seen := map[string]bool{}
	for c := range colours {
		if seen[c.on(light)] {
			t.Errorf("%s is twice among the light colours", c.on(light))
		}
		seen[c.on(light)] = true
	}
	for _, c := range []Chart{sampleBars(), sampleLines()} {
		file, err := File(c)
		if err != nil {
			t.Fatal(err)
		}
		_, drawing, _ := strings.Cut(string(file), "</style>")
		for _, m := range regexp.MustCompile(`(?:fill|stroke):(#[0-9A-F]{6})`).FindAllStringSubmatch(drawing, -1) {
			if !seen[m[1]] {
				t.Errorf("%s has no counterpart on a dark page", m[1])
			}
		}
		if bare := regexp.MustCompile(`<(text|path)[^>]*style="[^"]*"`).FindAllString(drawing, -1); len(bare) > 0 {
			for _, e := range bare {
				if !strings.Contains(e, "fill:") {
					t.Errorf("drawn in the viewer's black: %s", e)
				}
			}
		}
	}
}

func TestInlineHasNoGround(t *testing.T) {
	page, err := Inline(sampleBars())
	if err != nil {
		t.Fatal(err)
	}
	file, err := File(sampleBars())
	if err != nil {
		t.Fatal(err)
	}
	_, drawing, _ := strings.Cut(string(page), "</style>")
	if strings.Contains(drawing, "fill:#FFFFFF") || !strings.HasPrefix(string(page), "<svg ") || !strings.Contains(string(page), `aria-label="Run time &amp; more"`) {
		t.Errorf("inline: %.200s", page)
	}
	if _, drawing, _ := strings.Cut(string(file), "</style>"); !strings.Contains(drawing, "fill:#FFFFFF") {
		t.Error("the file has no ground of its own")
	}
}

func TestLegendBreaksIntoRows(t *testing.T) {
	var all []entry
	for _, name := range []string{"a", "b", "a", "a long name in a legend", "another long name", ""} {
		all = append(all, entry{name: name})
	}
	var names []string
	for _, row := range layOut(all, 160) {
		var used float64
		for _, e := range row {
			names = append(names, e.name)
			used += float64(e.width())
		}
		if len(row) > 1 && used > 160 {
			t.Errorf("a row takes %v of 160 points", used)
		}
	}
	if got := strings.Join(names, "|"); got != "a|b|a long name in a legend|another long name" {
		t.Errorf("entries %s", got)
	}
}

func TestRoundTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{{0, 100, "0 20 40 60 80 100"}, {0, 1.3, "0 0.2 0.4 0.6 0.8 1 1.2"}, {0.98, 1.02, "0.98 0.99 1 1.01 1.02"}, {3, 3, ""}} {
		var labels []string
		for _, tick := range (roundTicks{}).Ticks(c.low, c.high) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%v to %v: %q, want %q", c.low, c.high, got, c.want)
		}
	}
}
