// Package journal keeps the finished parts of a long measurement, one line of JSON each, across
// Ctrl-C, kill -9 and power cuts.
//
// If a measurement is continued later, the danger is not that a part is lost, but that parts are
// mixed that were measured differently. So the first line holds the setup, which is everything that
// may change a figure. Open refuses a journal with another setup, and names the fields that differ.
// A part is one line, written whole and flushed to the device before the next part starts. So only
// the last line can be half-written. If the last line has no newline, Open removes it. Any other
// unreadable line means that another program wrote to the file.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const version = 1

// Journal holds entries of type E that were measured with a setup of type S. Both are written as
// JSON; a value read from that JSON must equal the written value.
type Journal[S, E any] struct {
	file    *os.File
	entries []E
}

// line is one line of the file: the header or an entry.
type line[S, E any] struct {
	Version int    `json:"penstock_journal,omitempty"` // only in the header
	Kind    string `json:"kind,omitempty"`
	Setup   *S     `json:"setup,omitempty"`
	Entry   *E     `json:"entry,omitempty"`
}

// Open opens the journal at path, or creates a new one. kind names the measurement. Open refuses a
// journal of another kind or setup, and a journal that another process has open. If path is empty,
// the journal keeps its entries in memory only.
func Open[S, E any](path, kind string, setup S) (*Journal[S, E], error) {
	j := &Journal[S, E]{}
	if path == "" {
		return j, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	j.file = f
	if err := j.load(kind, setup); err != nil {
		f.Close()
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	return j, nil
}

var errForeign = errors.New("not a journal of this measurement: name a new file")

func (j *Journal[S, E]) load(kind string, setup S) error {
	if err := unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return errors.New("another penstock is writing it: wait for that one or name another file")
		}
		return fmt.Errorf("lock: %w", err)
	}
	content, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	whole := content[:bytes.LastIndexByte(content, '\n')+1]
	// The last line of a file that is not a journal must not be cut off.
	if len(whole) == 0 && !isPrefix(content, []byte(`{"penstock_journal":`)) {
		return errForeign
	}
	if err := j.parse(whole, kind, setup); err != nil {
		return err
	}
	if err := j.file.Truncate(int64(len(whole))); err != nil {
		return fmt.Errorf("cut off the half-written last line: %w", err)
	}
	if _, err := j.file.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	if len(whole) > 0 {
		return nil
	}
	if err := j.write(line[S, E]{Version: version, Kind: kind, Setup: &setup}); err != nil {
		return err
	}
	return syncDir(filepath.Dir(j.file.Name()))
}

// isPrefix reports whether one of the two begins with the other.
func isPrefix(a, b []byte) bool {
	n := min(len(a), len(b))
	return bytes.Equal(a[:n], b[:n])
}

func (j *Journal[S, E]) parse(whole []byte, kind string, setup S) error {
	if len(whole) == 0 {
		return nil
	}
	for i, text := range bytes.Split(bytes.TrimSuffix(whole, []byte("\n")), []byte("\n")) {
		var l line[S, E]
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("line %d is not a line of a journal (%v): name a new file", i+1, err)
		}
		switch {
		case i > 0 && l.Entry == nil:
			return fmt.Errorf("line %d holds no finished part: name a new file", i+1)
		case i > 0:
			j.entries = append(j.entries, *l.Entry)
		case l.Version == 0 || l.Kind != kind || l.Setup == nil:
			return errForeign
		case l.Version != version:
			return fmt.Errorf("version %d, this penstock writes %d: name a new file", l.Version, version)
		default:
			if d := Differences(*l.Setup, setup); len(d) > 0 {
				return fmt.Errorf("made with another setup (%s): use the same flags or name a new file", strings.Join(d, "; "))
			}
		}
	}
	return nil
}

// Entries returns the finished parts, oldest first.
func (j *Journal[S, E]) Entries() []E { return j.entries }

// Append adds a finished part and flushes it to the device.
func (j *Journal[S, E]) Append(e E) error {
	if j.file != nil {
		if err := j.write(line[S, E]{Entry: &e}); err != nil {
			return fmt.Errorf("write the journal: %w", err)
		}
	}
	j.entries = append(j.entries, e)
	return nil
}

func (j *Journal[S, E]) write(l line[S, E]) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(b, '\n')); err != nil {
		return err
	}
	return j.file.Sync()
}

// Close closes the file, which also releases the lock.
func (j *Journal[S, E]) Close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Differences returns a text for each field in which two setups differ. The text has the field's
// name in JSON and both values: "disk.size_bytes: 1, now 2".
func Differences[S any](was, now S) []string {
	var out []string
	differences("", fields(was), fields(now), &out)
	slices.Sort(out)
	return out
}

func fields(v any) map[string]any {
	b, _ := json.Marshal(v)
	var m map[string]any
	_ = json.Unmarshal(b, &m)
	return m
}

func differences(prefix string, was, now map[string]any, out *[]string) {
	keys := map[string]bool{}
	for k := range was {
		keys[k] = true
	}
	for k := range now {
		keys[k] = true
	}
	for k := range keys {
		a, aSub := was[k].(map[string]any)
		b, bSub := now[k].(map[string]any)
		if aSub && bSub {
			differences(prefix+k+".", a, b, out)
			continue
		}
		if x, y := render(was[k]), render(now[k]); x != y {
			*out = append(*out, fmt.Sprintf("%s%s: %s, now %s", prefix, k, x, y))
		}
	}
}

func render(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
