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

// Alone is the leadership of a cluster's only broker: always its own.
type Standalone struct{ state State }

// NewAlone begins an epoch of a broker without others, by the clock. Address is where
// nodes reach it. Of a clock that was ahead and is put right nodes refuse the next epoch,
// until they have taken no answer for ten minutes.
func NewStandalone(address string) *Standalone {
	return &Standalone{State{Leading: true, Leader: address, Epoch: NextEpoch(0, time.Now())}}
}

// epochFile is where the last epoch stands in a store's folder.
const epochFile = "epoch"

// OpenAlone is NewAlone with an epoch above the last one begun in the folder, whatever the
// clock says.
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
			return nil, fmt.Errorf("%s: %.40q is no epoch: put the last one that nodes have seen there, or delete it, and the clock decides", file, text)
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

// Changes implements Leadership: there are none.
func (a *Standalone) Changes() <-chan struct{} { return nil }
