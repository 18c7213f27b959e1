package judge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"penstock/lab/disk"
)

// Disks judges several disks by their recorded layouts.
type Disks struct {
	disks    []*disk.Disk
	watchers []*Watcher
	cancel   context.CancelFunc
	done     sync.WaitGroup
	errs     []error
}

// NewDisks returns a judge of disks. No layouts are recorded yet.
func NewDisks(disks []*disk.Disk) *Disks {
	d := &Disks{disks: disks, cancel: func() {}, errs: make([]error, len(disks))}
	for _, one := range disks {
		d.watchers = append(d.watchers, NewWatcher(one.Mount()))
	}
	return d
}

// Watch starts to record the layouts at every interval, until Stop is called. Watch itself returns
// when it has recorded one layout of every disk.
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

// Stop ends the recording and returns its errors. For a nil Disks it returns nil.
func (d *Disks) Stop() error {
	if d == nil {
		return nil
	}
	d.cancel()
	d.done.Wait()
	return errors.Join(d.errs...)
}

// Judge records every disk's layout once more. Then, once for every disk, it calls the function
// each with the requests that ended within the span and with the accounts for windows of the given
// length.
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
