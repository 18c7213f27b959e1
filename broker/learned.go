package broker

import (
	"context"
	"errors"
	"time"

	"penstock/broker/store"
)

// This file keeps what forecasts have learned in the store, so that a restart of the broker or a change of the leader does not
// lose it. A broker reads the record when it begins to lead, and writes it at most once a minute while it leads. Without the
// record, forecasts only learn again, so no error here ends anything.

const (
	// keepLearnedEvery is the least time between two writes. A broker that is killed loses what it has learned since the last one.
	keepLearnedEvery = time.Minute
	// lastWrite bounds the write at the broker's end.
	lastWrite = 2 * time.Second
)

// learning is the state of the record. Broker.mu protects it.
type learning struct {
	shared bool   // with other brokers, which may write it, too
	read   bool   // it was read in this epoch, or cannot be used
	newer  bool   // a newer version has written it, so it is not replaced
	runs   uint64 // that this broker has learned from
	kept   uint64 // of these, in the store
}

// awaitsLearned reports whether an application's forecast should wait until the record is read. A model cannot use later what
// was learned. b.mu is held.
func (b *Broker) awaitsLearned() bool {
	return b.epoch != 0 && !b.learning.read && time.Since(b.started) < failoverWait
}

// keepLearned reads and writes the record until ctx ends.
func (b *Broker) keepLearned(ctx context.Context) {
	ticker := time.NewTicker(rightsInterval)
	defer ticker.Stop()
	var tried, written time.Time
	failed := false // the last request has failed, and this was logged
	note := func(what string, err error) {
		if err != nil && !failed && !errors.Is(err, store.ErrNotLeader) && ctx.Err() == nil {
			b.log.Warn(what+"; retrying", "error", err)
		}
		failed = err != nil
	}
	for {
		b.mu.Lock()
		leads, l := b.epoch != 0, b.learning
		b.mu.Unlock()
		changed := leads && l.read && !l.newer && l.runs != l.kept
		switch {
		case ctx.Err() != nil:
			if changed {
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
				defer cancel()
				if err := b.writeLearned(last); err != nil && !errors.Is(err, store.ErrNotLeader) {
					b.log.Warn("what forecasts have learned in the last minute is lost", "error", err)
				}
			}
			return
		case leads && !l.read && time.Since(tried) >= storeRetry:
			tried = time.Now()
			note("what forecasts have learned cannot be read", b.readLearned(ctx))
		case changed && time.Since(written) >= keepLearnedEvery:
			written = time.Now()
			note("what forecasts have learned cannot be written", b.writeLearned(ctx))
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// readLearned adds the store's record to the history. It returns the errors of the store; a record that cannot be used is logged.
func (b *Broker) readLearned(ctx context.Context) error {
	b.mu.Lock()
	epoch := b.epoch
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	record, err := b.options.Store.Learned(ctx)
	if err != nil {
		return err
	}
	newer := false
	if record != nil {
		all, skipped, err := store.DecodeLearned(record)
		newer = errors.Is(err, store.ErrNewer)
		switch {
		case newer:
			b.log.Warn("the record of what forecasts have learned stays as it is, and this broker's forecasts learn in memory only", "error", err)
		case err != nil:
			b.log.Warn("the record of what forecasts have learned cannot be used and will be replaced; forecasts learn again", "error", err)
		case skipped > 0:
			b.log.Warn("some of what forecasts have learned cannot be used; these forecasts learn again", "kinds", skipped)
		}
		b.mu.Lock()
		b.history.Restore(all)
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.epoch == epoch {
		b.learning.read, b.learning.newer = true, newer
	}
	return nil
}

// writeLearned writes the record. It returns the errors of the store.
func (b *Broker) writeLearned(ctx context.Context) error {
	b.mu.Lock()
	runs, all := b.learning.runs, b.history.Entries()
	b.mu.Unlock()
	record, kept, err := store.EncodeLearned(all)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := b.options.Store.KeepLearned(ctx, record); err != nil {
		return err
	}
	b.log.Debug("what forecasts have learned is kept", "kinds", kept, "left_out", len(all)-kept, "bytes", len(record))
	b.mu.Lock()
	b.learning.kept = runs
	b.mu.Unlock()
	return nil
}
