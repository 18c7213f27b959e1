package isolation

import (
	"slices"

	"penstock/lab/experiment/journal"
)

// Journal keeps finished runs, so that an experiment of an hour survives Ctrl-C,
// kill -9 and a power cut.
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

// Has says whether the turn is done already.
func (j *Journal) Has(t Turn) bool {
	return slices.ContainsFunc(j.Runs(), func(r Run) bool { return r.Phase == t.Phase.Name && r.Number == t.Run })
}

// Checked says whether a run of the phase has had both outputs checked.
func (j *Journal) Checked(p Phase) bool {
	return slices.ContainsFunc(j.Runs(), func(r Run) bool { return r.Phase == p.Name && !r.Killed })
}
