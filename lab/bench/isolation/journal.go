package isolation

import (
	"slices"

	"penstock/lab/experiment/journal"
)

// Journal keeps finished runs across Ctrl-C, kill -9 and power cuts.
type Journal struct {
	*journal.Journal[Setup, Run]
}

// OpenJournal opens the journal at path, or starts one. It refuses a journal of
// another setup, naming the differing fields, and one that another process has
// open. An empty path gives a journal that keeps runs in memory only.
func OpenJournal(path string, setup Setup) (*Journal, error) {
	j, err := journal.Open[Setup, Run](path, "isolation", setup)
	if err != nil {
		return nil, err
	}
	return &Journal{j}, nil
}

// Runs are the finished runs, oldest first.
func (j *Journal) Runs() []Run { return j.Entries() }

// Has reports whether the turn is done.
func (j *Journal) Has(t Turn) bool {
	return slices.ContainsFunc(j.Runs(), func(r Run) bool { return r.Phase == t.Phase.Name && r.Number == t.Run })
}

// Checked reports whether both outputs were checked in a run of the phase.
func (j *Journal) Checked(p Phase) bool {
	return slices.ContainsFunc(j.Runs(), func(r Run) bool { return r.Phase == p.Name && !r.Killed })
}
