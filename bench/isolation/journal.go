package isolation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Journal keeps finished runs, one JSON line each, so that an experiment of an
// hour survives Ctrl-C, kill -9 and a power cut. The first line holds the setup
// and its hash; a run is one line, written whole and flushed to the device
// before the next run starts. Only a last line without its newline can be
// half-written: it is cut off when the journal is opened. Any other unreadable
// line means that something else wrote here, and the journal is refused.
type Journal struct {
	file *os.File
	runs []Run
}

const journalVersion = 1

// line is one line of the journal: a header or a run.
type line struct {
	Journal int    `json:"penstock_isolation_journal,omitempty"` // version; only in the header
	Hash    string `json:"hash,omitempty"`
	Setup   *Setup `json:"setup,omitempty"`
	Run     *Run   `json:"run,omitempty"`
}

// OpenJournal opens the journal at path, or starts one. It refuses a journal of
// another setup, naming the differing fields, and one that another process has
// open. An empty path gives a journal that keeps runs in memory only.
func OpenJournal(path string, setup Setup) (*Journal, error) {
	if path == "" {
		return &Journal{}, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	j := &Journal{file: f}
	if err := j.load(setup); err != nil {
		f.Close()
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	return j, nil
}

func (j *Journal) load(setup Setup) error {
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
	// A file that is not a journal must not lose its last line to us.
	if len(whole) == 0 && len(content) > 0 && !looksLikeHeader(content) {
		return errors.New("not a journal: name a new file")
	}
	if err := j.parse(whole, setup); err != nil {
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
	if err := j.write(line{Journal: journalVersion, Hash: setup.Hash(), Setup: &setup}); err != nil {
		return err
	}
	return syncDir(filepath.Dir(j.file.Name()))
}

func looksLikeHeader(content []byte) bool {
	const start = `{"penstock_isolation_journal":`
	n := min(len(content), len(start))
	return string(content[:n]) == start[:n]
}

func (j *Journal) parse(whole []byte, setup Setup) error {
	if len(whole) == 0 {
		return nil
	}
	for i, text := range bytes.Split(bytes.TrimSuffix(whole, []byte("\n")), []byte("\n")) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("line %d is not one of ours (%v): name a new file", i+1, err)
		}
		switch {
		case i == 0:
			if err := checkHeader(l, setup); err != nil {
				return err
			}
		case l.Run == nil:
			return fmt.Errorf("line %d is not a run: name a new file", i+1)
		default:
			j.runs = append(j.runs, *l.Run)
		}
	}
	return nil
}

func checkHeader(l line, setup Setup) error {
	switch {
	case l.Journal == 0 || l.Setup == nil:
		return errors.New("not a journal: name a new file")
	case l.Journal != journalVersion:
		return fmt.Errorf("version %d, this penstock writes %d: name a new file", l.Journal, journalVersion)
	case l.Hash != setup.Hash():
		return fmt.Errorf("its runs were made with another setup (%s): use the same flags or name a new file",
			strings.Join(l.Setup.diff(setup), "; "))
	}
	return nil
}

// Runs are the finished runs, oldest first.
func (j *Journal) Runs() []Run { return j.runs }

// Has says whether the turn is done already.
func (j *Journal) Has(t Turn) bool {
	for _, r := range j.runs {
		if r.Phase == t.Phase.Name && r.Number == t.Run {
			return true
		}
	}
	return false
}

// Checked says whether a run of the phase has had both outputs checked.
func (j *Journal) Checked(p Phase) bool {
	for _, r := range j.runs {
		if r.Phase == p.Name && !r.Killed {
			return true
		}
	}
	return false
}

// Append adds a finished run and flushes it to the device.
func (j *Journal) Append(r Run) error {
	if j.file != nil {
		if err := j.write(line{Run: &r}); err != nil {
			return fmt.Errorf("write the journal: %w", err)
		}
	}
	j.runs = append(j.runs, r)
	return nil
}

func (j *Journal) write(l line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(b, '\n')); err != nil {
		return err
	}
	return j.file.Sync()
}

// Close lets go of the file.
func (j *Journal) Close() error {
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
