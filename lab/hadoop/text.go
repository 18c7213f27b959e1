package hadoop

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Text describes WordCount's input: files of words with frequencies as in natural text (Zipf: the
// frequency of the k-th most frequent word is proportional to 1/k), so the combiner has an effect.
// WordCount's CPU time is about half a microsecond per word, and the disk's time depends on bytes.
// So with longer words the job needs more I/O for the same CPU time.
//
// The same Text always gives the same bytes, and the count of every word is known.
type Text struct {
	Seed       uint64
	Vocabulary int   // distinct words, default 2,000
	WordBytes  int   // mean length of a word, default 6; lengths vary by half of it
	Files      int   // default 2; file i lies on DataNode i mod n, as one block
	FileBytes  int64 // default 256 MiB; rounded up to a multiple of 512
}

func (t *Text) validate() error {
	t.Vocabulary, t.WordBytes, t.Files = cmp.Or(t.Vocabulary, 2000), cmp.Or(t.WordBytes, 6), cmp.Or(t.Files, 2)
	t.FileBytes = (cmp.Or(t.FileBytes, 256<<20) + 511) / 512 * 512
	if t.Vocabulary < 1 || t.Vocabulary > 1_000_000 || t.WordBytes < 4 || t.WordBytes > 1024 || t.Files < 1 || t.FileBytes < 1<<20 {
		return fmt.Errorf("hadoop: text out of range: vocabulary %d (1 to 1,000,000), word bytes %d (4 to 1024), files %d, file bytes %d (at least 1 MiB)",
			t.Vocabulary, t.WordBytes, t.Files, t.FileBytes)
	}
	return nil
}

const wordLetters = "abcdefghijklmnopqrstuvwxyz0123456789/._-=&?%"

// words returns the vocabulary, the most frequent words first.
func (t Text) words() [][]byte {
	r := rand.New(rand.NewPCG(t.Seed, 1))
	words := make([][]byte, t.Vocabulary)
	for i := range words {
		// The rank at the beginning makes words distinct.
		w := append([]byte(strconv.FormatInt(int64(i), 36)), '-')
		for n := t.WordBytes/2 + r.IntN(t.WordBytes+1); len(w) < n; {
			w = append(w, wordLetters[r.IntN(len(wordLetters))])
		}
		words[i] = w
	}
	return words
}

// textReader makes the bytes of a file and counts its words at the same time.
type textReader struct {
	words  [][]byte
	pick   []int32 // table of ranks, in which each rank occurs in proportion to its frequency
	rand   *rand.PCG
	left   int64
	column int
	buf    []byte
	counts []int64
}

const (
	pickBits     = 16
	wordsPerLine = 12
)

// file returns a reader of file number i.
func (t Text) file(i int, words [][]byte) *textReader {
	// Looking up each word in a table with 65,536 entries is faster than computing a logarithm for it.
	// Each rank has as many entries as its frequency requires.
	pick := make([]int32, 0, 1<<pickBits)
	harmonic := 0.0
	for k := range words {
		harmonic += 1 / float64(k+1)
	}
	sum := 0.0
	for k := range words {
		sum += 1 / float64(k+1)
		for limit := int(math.Round(sum / harmonic * (1 << pickBits))); len(pick) < limit; {
			pick = append(pick, int32(k))
		}
	}
	for len(pick) < 1<<pickBits {
		pick = append(pick, 0)
	}
	return &textReader{words: words, pick: pick, rand: rand.NewPCG(t.Seed, uint64(i)+2), left: t.FileBytes, counts: make([]int64, len(words))}
}

func (t *textReader) Read(p []byte) (int, error) {
	if len(t.buf) == 0 {
		if t.left == 0 {
			return 0, io.EOF
		}
		t.fill()
	}
	n := copy(p, t.buf)
	t.buf = t.buf[n:]
	return n, nil
}

// fill makes the next 64 KiB or so. If the last bytes of a file are too few for a word, they are
// empty lines.
func (t *textReader) fill() {
	b := t.buf[:0:0]
	for len(b) < 64<<10 && t.left > 0 {
		bits := t.rand.Uint64()
		for range 64 / pickBits {
			k := t.pick[bits&(1<<pickBits-1)]
			bits >>= pickBits
			w := t.words[k]
			if int64(len(w))+1 > t.left {
				b = append(b, bytes.Repeat([]byte{'\n'}, int(t.left))...)
				t.left = 0
				break
			}
			b = append(b, w...)
			t.left -= int64(len(w)) + 1
			t.counts[k]++
			if t.column++; t.column == wordsPerLine || t.left == 0 {
				t.column = 0
				b = append(b, '\n')
			} else {
				b = append(b, ' ')
			}
			if t.left == 0 {
				break
			}
		}
	}
	t.buf = b
}

// WordCounts is the expected result of WordCount.
type WordCounts struct {
	Bytes int64 // size of the input
	Total int64 // number of all words
	Words map[string]int64
}

// WriteText writes a text below dir and returns the result that WordCount must find. Every file is
// one block, so a job has one map per file. File i is on DataNode i mod n, where n is the number of
// DataNodes. So the same number of bytes is read from each disk if the number of files is a
// multiple of n.
func (c *Cluster) WriteText(ctx context.Context, dir string, t Text) (*WordCounts, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	words := t.words()
	want := &WordCounts{Words: map[string]int64{}}
	for i := range t.Files {
		path := fmt.Sprintf("%s/text-%04d", dir, i)
		var last *textReader
		err := c.FS().CreateOn(ctx, path, c.DataNodeAddress(i%len(c.cfg.DataNodes)), t.FileBytes, func() io.Reader {
			last = t.file(i, words)
			return last
		})
		if err != nil {
			return nil, err
		}
		want.Bytes += t.FileBytes
		for k, n := range last.counts {
			if n > 0 {
				want.Words[string(words[k])] += n
				want.Total += n
			}
		}
	}
	return want, nil
}

// VerifyWordCount compares the job's output with the expected result, word by word.
func (c *Cluster) VerifyWordCount(ctx context.Context, output string, want *WordCounts) error {
	got := map[string]int64{}
	var total int64
	err := c.eachPart(ctx, output, func(path string, r io.Reader) error {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			word, n, err := parseWordCountLine(lines.Bytes())
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if _, twice := got[word]; twice {
				return fmt.Errorf("%s: word %q occurs a second time", path, word)
			}
			got[word] = n
			total += n
		}
		return lines.Err()
	})
	if err != nil {
		return err
	}
	return want.compare("WordCount", output, got, total)
}

// compare returns an error if the words in an output, total of them, differ from the expected ones.
func (want *WordCounts) compare(job, output string, got map[string]int64, total int64) error {
	for word, n := range want.Words {
		if got[word] != n {
			return fmt.Errorf("%s's output %s is wrong: %q counted %d times, written %d times", job, output, word, got[word], n)
		}
	}
	if total != want.Total || len(got) != len(want.Words) {
		return fmt.Errorf("%s's output %s is wrong: it has %d words, %d of them distinct; %d and %d were written", job, output, total, len(got), want.Total, len(want.Words))
	}
	return nil
}

// VerifySort checks the output of Sort: the lines of each part are in order, and all parts together have
// the words of the input. Sort does not order the parts among each other.
func (c *Cluster) VerifySort(ctx context.Context, output string, want *WordCounts) error {
	got := map[string]int64{}
	var total int64
	err := c.eachPart(ctx, output, func(path string, r io.Reader) error {
		n, err := countSorted(r, got)
		total += n
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return want.compare("Sort", output, got, total)
}

// countSorted adds the words of lines to counts and returns their number. It returns an error if a line is
// before the line above it.
func countSorted(r io.Reader, counts map[string]int64) (total int64, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	var last []byte
	for n := 1; lines.Scan(); n++ {
		line, _ := bytes.CutSuffix(lines.Bytes(), []byte{'\t'}) // the key's end, before an empty value
		if bytes.Compare(line, last) < 0 {
			return total, fmt.Errorf("line %d is not in order", n)
		}
		last = append(last[:0], line...)
		for _, word := range bytes.Fields(line) {
			counts[string(word)]++
			total++
		}
	}
	return total, lines.Err()
}

func parseWordCountLine(line []byte) (word string, n int64, err error) {
	word, count, ok := strings.Cut(string(line), "\t")
	if !ok {
		return "", 0, fmt.Errorf("no tab in line %q", line)
	}
	n, err = strconv.ParseInt(count, 10, 64)
	return word, n, err
}

// eachPart reads the part-* files of a job's output in order. An output without _SUCCESS is an
// error, because the job has not committed it.
func (c *Cluster) eachPart(ctx context.Context, dir string, read func(path string, r io.Reader) error) error {
	files, err := c.FS().List(ctx, dir)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(files, func(f File) bool { return f.Path == dir+"/_SUCCESS" }) {
		return fmt.Errorf("%s has no _SUCCESS: its job has not succeeded", dir)
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	for _, f := range files {
		if f.Length == 0 || !strings.HasPrefix(f.Path, dir+"/part-") {
			continue
		}
		r, err := c.FS().Open(ctx, f.Path)
		if err != nil {
			return err
		}
		err = read(f.Path, r)
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
