package judge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"penstock/lab/disk"
)

// Disks judges several disks, by the layouts that it has recorded of each.
type Disks struct {
	disks    []*disk.Disk
	watchers []*Watcher
	cancel   context.CancelFunc
	done     sync.WaitGroup
	errs     []error
}

// NewDisks returns a judge of disks whose layouts are not recorded yet.
func NewDisks(disks []*disk.Disk) *Disks {
	d := &Disks{disks: disks, cancel: func() {}, errs: make([]error, len(disks))}
	for _, one := range disks {
		d.watchers = append(d.watchers, NewWatcher(one.Mount()))
	}
	return d
}

// Watch begins to record the layouts at every interval, until Stop. It returns when every disk has
// been read once, with all directories.
func (d *Disks) Watch(interval time.Duration) error {
	for _, w := range d.watchers {
		if err := w.Look(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	for i, w := range d.watchers {
		d.done.Go(func() { d.errs[i] = w.Run(ctx, interval) })
	}
	return nil
}

// Stop ends the recording and returns its errors. A nil Disks has none.
func (d *Disks) Stop() error {
	if d == nil {
		return nil
	}
	d.cancel()
	d.done.Wait()
	return errors.Join(d.errs...)
}

// Judge looks once more at every disk, and calls each with the requests that ended within the span
// and their accounts by windows of the given length.
func (d *Disks) Judge(span Window, length time.Duration, owner Owner, each func(requests []disk.Record, accounts []Account)) error {
	for i, one := range d.disks {
		if err := d.watchers[i].Look(); err != nil {
			return err
		}
		records, err := ReadLog(one)
		if err != nil {
			return err
		}
		inside := slices.DeleteFunc(records, func(r disk.Record) bool { return r.Ended < span.From || r.Ended >= span.To })
		each(inside, d.watchers[i].Judge(inside, owner, Windows(span, length)...))
	}
	return nil
}
