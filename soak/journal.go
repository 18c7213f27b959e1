package soak

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Journal keeps what a campaign has seen, a JSON line each, so that one of an hour
// survives Ctrl-C, kill -9 and a power cut. The first line holds the setup; each
// later one a fault that is over, a round of jobs, a finding, or the checks at the
// end of a stretch. Lines are flushed to the device one by one, so only the last
// can be half-written: it is cut off when the journal is opened again.
type Journal struct {
	file     *os.File // nil: in memory only
	outcomes []Outcome
	rounds   []Round
	findings []string
	endings  []Ending
}

const journalVersion = 1

// line is one line: exactly one of its parts.
type line struct {
	Journal int      `json:"penstock_soak_journal,omitempty"` // version; the first line
	Hash    string   `json:"hash,omitempty"`
	Setup   *Setup   `json:"setup,omitempty"`
	Outcome *Outcome `json:"outcome,omitempty"`
	Round   *Round   `json:"round,omitempty"`
	Finding string   `json:"finding,omitempty"`
	Ending  *Ending  `json:"ending,omitempty"`
}

// OpenJournal opens the journal at path or starts one; "" keeps it in memory. It
// refuses one of another setup, and one that another process writes.
func OpenJournal(path string, s Setup) (*Journal, error) {
	if path == "" {
		return &Journal{}, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	j := &Journal{file: f}
	if err := j.open(s); err != nil {
		f.Close()
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	return j, nil
}

func (j *Journal) open(s Setup) error {
	if err := unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another penstock is writing it: wait for that one or name another file (%w)", err)
	}
	content, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	whole := content[:bytes.LastIndexByte(content, '\n')+1]
	if len(whole) == 0 && len(content) > 0 {
		return errors.New("not a journal: name a new file")
	}
	if err := j.parse(whole, s); err != nil {
		return err
	}
	if len(whole) == 0 {
		return j.write(line{Journal: journalVersion, Hash: s.hash(), Setup: &s})
	}
	if err := j.file.Truncate(int64(len(whole))); err != nil {
		return fmt.Errorf("cut off the half-written last line: %w", err)
	}
	_, err = j.file.Seek(0, io.SeekEnd)
	return err
}

// parse reads whole lines. An empty content is an empty journal.
func (j *Journal) parse(content []byte, s Setup) error {
	for i, text := range bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n")) {
		if len(content) == 0 {
			return nil
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("line %d is not one of ours (%w): name a new file", i+1, err)
		}
		if i == 0 {
			switch {
			case l.Journal == 0 || l.Setup == nil:
				return errors.New("not a journal: name a new file")
			case l.Journal != journalVersion:
				return fmt.Errorf("version %d, this penstock writes %d: name a new file", l.Journal, journalVersion)
			case l.Hash != s.hash():
				return fmt.Errorf("it is of another campaign (seed %d, %d kills, Hadoop %s): use the same flags or name a new file",
					l.Setup.Seed, l.Setup.Kills, l.Setup.Hadoop)
			}
			continue
		}
		if err := j.take(l); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return nil
}

func (j *Journal) take(l line) error {
	switch {
	case l.Outcome != nil:
		if l.Outcome.Number != len(j.outcomes)+1 {
			return fmt.Errorf("fault %d comes after %d: name a new file", l.Outcome.Number, len(j.outcomes))
		}
		j.outcomes = append(j.outcomes, *l.Outcome)
	case l.Round != nil:
		j.rounds = append(j.rounds, *l.Round)
	case l.Finding != "":
		j.findings = append(j.findings, l.Finding)
	case l.Ending != nil:
		j.endings = append(j.endings, *l.Ending)
	default:
		return errors.New("neither a fault nor a round, a finding or an end: name a new file")
	}
	return nil
}

// add keeps a line.
func (j *Journal) add(l line) error {
	if err := j.take(l); err != nil {
		return err
	}
	if j.file == nil {
		return nil
	}
	return j.write(l)
}

func (j *Journal) write(l line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write the journal: %w", err)
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
