package leadership

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Standalone is the leadership of a cluster's only broker, which always leads.
type Standalone struct{ state State }

// NewStandalone begins an epoch whose number is the clock's time. address is the broker's address
// for nodes. If the clock was ahead and was then corrected, nodes refuse the new epoch until they
// have accepted no answer for ten minutes. OpenStandalone avoids that.
func NewStandalone(address string) *Standalone {
	return &Standalone{State{Leading: true, Leader: address, Epoch: NextEpoch(0, time.Now())}}
}

// epochFile is the name of the file, in a store's folder, that holds the last epoch.
const epochFile = "epoch"

// OpenStandalone is like NewStandalone, but its epoch is larger than the last one recorded in the
// folder, even if the clock was set back. It records the new epoch there.
func OpenStandalone(dir, address string) (*Standalone, error) {
	file := filepath.Join(dir, epochFile)
	var last uint64
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if last, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil || last == 1<<64-1 {
			return nil, fmt.Errorf("%s: %.40q is not an epoch: write the last epoch that nodes have seen there, or delete the file to begin at the clock's time", file, text)
		}
	}
	a := &Standalone{State{Leading: true, Leader: address, Epoch: NextEpoch(last, time.Now())}}
	f, err := os.CreateTemp(dir, epochFile+".new-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintln(f, a.state.Epoch)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	return a, os.Rename(f.Name(), file)
}

// State implements Leadership.
func (a *Standalone) State() State { return a.state }

// Changes implements Leadership. The leadership never changes.
func (a *Standalone) Changes() <-chan struct{} { return nil }
