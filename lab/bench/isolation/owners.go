package isolation

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"penstock/lab/disk"
	"penstock/lab/judge"
)

// owners attribute files by their paths: blocks by their number, intermediate data by the
// application after which YARN named its folder.
type owners struct{ blocks, applications map[string]string }

func (o owners) of(path string) string {
	if id := blockID(path); id != "" {
		return o.blocks[id]
	}
	for name := range strings.SplitSeq(path, "/") {
		if owner, ok := o.applications[name]; ok {
			return owner
		}
	}
	return ""
}

var blockName = regexp.MustCompile(`blk_\d+`)

// blockID returns the block of a DataNode's file, for blk_12 and blk_12_34.meta alike.
func blockID(path string) string { return blockName.FindString(filepath.Base(path)) }

// lookEvery is the interval at which the extents of intermediate files are read: such files
// live for seconds, and get their extents when they are written out.
const lookEvery = time.Second

// watchers read the extents of every disk's files while jobs run.
type watchers struct {
	all    []*judge.Watcher
	cancel context.CancelFunc
	done   sync.WaitGroup
	errs   []error
}

func newWatchers(disks []*disk.Disk) *watchers {
	w := &watchers{errs: make([]error, len(disks))}
	for _, d := range disks {
		w.all = append(w.all, judge.NewWatcher(d.Mount()))
	}
	return w
}

// watch returns when every disk has been read once, with all directories.
func watch(disks []*disk.Disk) (*watchers, error) {
	w := newWatchers(disks)
	for _, one := range w.all {
		if err := one.Look(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	for i, one := range w.all {
		w.done.Go(func() { w.errs[i] = one.Run(ctx, lookEvery) })
	}
	return w, nil
}

// stop ends the watchers. They can be nil.
func (w *watchers) stop() error {
	if w == nil {
		return nil
	}
	w.cancel()
	w.done.Wait()
	return errors.Join(w.errs...)
}
