package soak

import (
	"errors"
	"fmt"

	"penstock/lab/experiment/journal"
)

// Journal keeps a campaign's results: each finished fault, each round of jobs, each finding, and
// the checks at the end of each stretch. So a campaign of an hour survives Ctrl-C, kill -9 and a
// power failure.
type Journal struct {
	*journal.Journal[Setup, line]
	outcomes []Outcome
	rounds   []Round
	findings []string
	endings  []Ending
}

// line is one entry. Exactly one of its fields is set.
type line struct {
	Outcome *Outcome `json:"outcome,omitempty"`
	Round   *Round   `json:"round,omitempty"`
	Finding string   `json:"finding,omitempty"`
	Ending  *Ending  `json:"ending,omitempty"`
}

// OpenJournal opens the journal at path, or creates a new one. If path is "", the journal is only
// in memory. OpenJournal refuses a journal of another setup, and a journal that another process is
// writing.
func OpenJournal(path string, s Setup) (*Journal, error) {
	file, err := journal.Open[Setup, line](path, "soak", s)
	if err != nil {
		return nil, err
	}
	j := &Journal{Journal: file}
	for i, l := range file.Entries() {
		if err := j.take(l); err != nil {
			file.Close()
			return nil, fmt.Errorf("journal %s: entry %d: %w", path, i+1, err)
		}
	}
	return j, nil
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

// add appends a line.
func (j *Journal) add(l line) error {
	if err := j.take(l); err != nil {
		return err
	}
	return j.Append(l)
}

// kills returns how many of the faults are kills.
func (j *Journal) kills() (n int) {
	for _, o := range j.outcomes {
		if o.Kind.kill() {
			n++
		}
	}
	return n
}
