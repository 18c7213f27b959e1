package pagerank

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// The parts of a graph are the whole graph, and about as long as asked. The same seed makes the same graph.
func TestGraph(t *testing.T) {
	const size = 1 << 20
	var whole, parts, other bytes.Buffer
	g := New(1, size)
	for i := range 7 {
		if err := g.Write(&parts, i, 7); err != nil {
			t.Fatal(err)
		}
	}
	g.Write(&whole, 0, 1)
	New(1, size).Write(&other, 0, 1)
	if whole.String() != parts.String() || whole.String() != other.String() {
		t.Error("the graph is not the same")
	}
	if got := float64(whole.Len()) / size; got < 0.5 || got > 1.3 {
		t.Errorf("the graph has %.2f of the bytes", got)
	}
	if err := g.Check(&whole); err != nil {
		t.Error(err)
	}
}

// An example computed by hand: page 0 links to 0 and 1, page 1 to 0.
func TestIterate(t *testing.T) {
	g := &Graph{links: [][]uint32{{0, 1}, {0}}, ranks: []int64{unit, unit}}
	g.Iterate()
	if g.ranks[0] != 150_000+425_000+850_000 || g.ranks[1] != 150_000+425_000 {
		t.Errorf("ranks %v", g.ranks)
	}
}

// The sum of the ranks stays the number of pages, except for less than a millionth of each page's rank.
func TestSum(t *testing.T) {
	g := New(2, 1<<18)
	for range 3 {
		g.Iterate()
	}
	sum := int64(0)
	for _, r := range g.ranks {
		sum += r
	}
	if lost := float64(unit*len(g.ranks)-int(sum)) / float64(len(g.ranks)); math.Abs(lost) > 3 {
		t.Errorf("%v millionths of a page are lost", lost)
	}
}

func TestCheck(t *testing.T) {
	g := &Graph{links: [][]uint32{{0, 1}, {0}}, ranks: []int64{5, 7}}
	for text, want := range map[string]string{
		"1\t7\t0\n0\t5\t0 1\n":           "",
		"0\t5\t0 1\n":                    "1 pages, want 2",
		"0\t5\t0 1\n0\t5\t0 1\n":         "twice",
		"0\t5\t0 1\n1\t8\t0\n":           "want \"1\\t7",
		"0\t5\t0 1\n1\t7\t1\n":           "want \"1\\t7",
		"0\t5\t0 1\n2\t7\t0\n":           "not in the graph",
		"0\t5\t0 1\nx\n":                 "not in the graph",
		"":                               "0 pages",
		strings.Repeat("1", 100_000):     "too long",
		"0\t5\t0 1\n1\t7\t0\n-1\t7\t0\n": "not in the graph",
	} {
		if err := g.Check(strings.NewReader(text)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}
