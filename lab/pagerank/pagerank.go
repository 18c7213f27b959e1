// Package pagerank is PageRank as a chain of MapReduce jobs, with its input and an independent check of its result.
//
// Hadoop's examples have no PageRank. PageRank.java is one iteration; its output is the next one's input. Sums of
// floating-point numbers would depend on the order in which a reduce gets its values, and so on the shuffle. So ranks are
// whole millionths, and this package computes the same numbers.
package pagerank

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"

	"penstock/lab/client"
)

//go:embed PageRank.java
var source []byte

// Compile compiles the job into the folder dir, with Hadoop's jars in lib. The folder belongs in hadoop.Config.Jars.
func Compile(ctx context.Context, lib, dir string) error {
	return client.CompileSources(ctx, lib, dir, map[string][]byte{"PageRank.java": source})
}

const (
	unit           = 1_000_000 // the mean rank, in millionths
	dampingPercent = 85
	linksMax       = 31
	// pageBytes is about the length of a page's line.
	pageBytes = 128
)

// Graph is a graph of pages.
type Graph struct {
	links [][]uint32 // from each page
	ranks []int64
}

// New returns a graph of about the given number of bytes, as text. Pages have 1 to 31 links. Links to pages with small
// numbers are more frequent, as few pages of the web get most of the links. Each page has the rank 1.
func New(seed uint64, bytes int64) *Graph {
	pages := max(1, bytes/pageBytes)
	random := rand.New(rand.NewPCG(seed, 0))
	g := &Graph{links: make([][]uint32, pages), ranks: make([]int64, pages)}
	for i := range g.links {
		g.ranks[i] = unit
		g.links[i] = make([]uint32, 1+random.IntN(linksMax))
		for j := range g.links[i] {
			at := random.Float64()
			g.links[i][j] = uint32(at * at * float64(pages))
		}
	}
	return g
}

// Write writes part i of n of the graph, in the form of the job's input.
func (g *Graph) Write(w io.Writer, i, n int) error {
	out := bufio.NewWriter(w)
	for page := len(g.links) * i / n; page < len(g.links)*(i+1)/n; page++ {
		out.WriteString(g.line(page))
		out.WriteByte('\n')
	}
	return out.Flush()
}

// line returns a page's line, without its end.
func (g *Graph) line(page int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\t%d", page, g.ranks[page])
	separator := byte('\t')
	for _, to := range g.links[page] {
		b.WriteByte(separator)
		b.WriteString(strconv.FormatUint(uint64(to), 10))
		separator = ' '
	}
	return b.String()
}

// Iterate changes the ranks as an iteration of the job does.
func (g *Graph) Iterate() {
	next := make([]int64, len(g.ranks))
	for i := range next {
		next[i] = unit * (100 - dampingPercent) / 100
	}
	for page, links := range g.links {
		all, n := g.ranks[page]*dampingPercent/100, int64(len(links))
		for i, to := range links {
			next[to] += all / n
			if int64(i) < all%n {
				next[to]++
			}
		}
	}
	g.ranks = next
}

// Check reads the job's output, in any order of the pages. It returns an error unless each page is there once, with its
// links and with its rank in the graph.
func (g *Graph) Check(r io.Reader) error {
	seen := make([]bool, len(g.links))
	pages := 0
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "\t")
		page, err := strconv.Atoi(text)
		if err != nil || page < 0 || page >= len(seen) || seen[page] {
			return fmt.Errorf("the page %.40q is not in the graph, or is in the result twice", text)
		}
		if want := g.line(page); lines.Text() != want {
			return fmt.Errorf("PageRank's result has the line %q, want %q", lines.Text(), want)
		}
		seen[page] = true
		pages++
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if pages != len(seen) {
		return fmt.Errorf("PageRank's result has %d pages, want %d", pages, len(seen))
	}
	return nil
}
