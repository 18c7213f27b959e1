package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/broker/policyfile"
	"penstock/broker/store"
	"penstock/settings"
)

const (
	filePollInterval = 500 * time.Millisecond
	// fileWait bounds one attempt to take a policy file: three questions to the store.
	fileTimeout = 3 * storeTimeout
)

// fileAuthor is the author of versions that come from a policy file; their note is its name.
const fileAuthor = "policy file"

// TakeFile makes a policy file a new version, unless its text is in force or was the last
// that came from a file: what operators have applied since holds until the file changes.
// A bad file never replaces a good one.
func (b *Broker) ApplyFile(ctx context.Context, file string) error {
	text, err := settings.Read(file, policyfile.MaxBytes)
	if err != nil {
		return err
	}
	if _, err := policyfile.Parse(text); err != nil {
		return invalidFileError{fmt.Errorf("%s: %w", file, err)}
	}
	latest, err := b.options.Store.Latest(ctx)
	if err != nil || bytes.Equal(latest.Text, text) {
		return err
	}
	taken := false
	if err := b.options.Store.History(ctx, store.Keep, func(v store.Version) bool {
		taken = v.Author == fileAuthor && bytes.Equal(v.Text, text)
		return v.Author != fileAuthor
	}); err != nil || taken {
		return err
	}
	_, err = b.write(ctx, 0, fileAuthor, func(v *store.Version) error {
		v.Text, v.Note = text, file[:min(len(file), store.MaxNote)]
		return nil
	})
	if errors.Is(err, errNotInForceYet) { // watch goes on trying
		b.log.Warn("the policy file's version waits", "error", err)
		return nil
	}
	return err
}

// badFileError: the file will be no better until it is another.
type invalidFileError struct{ error }

// Follow takes the policy file each time it changes from what it was by its fingerprint,
// until ctx ends.
func (b *Broker) FollowFile(ctx context.Context, file, last string) {
	said := "" // the fingerprint for which an error that passes was said
	ticker := time.NewTicker(filePollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := settings.Fingerprint(file)
		if now == last || !b.leadership.State().Leading {
			continue
		}
		within, cancel := context.WithTimeout(ctx, fileTimeout)
		err := b.ApplyFile(within, file)
		cancel()
		var bad invalidFileError
		switch {
		case err == nil:
			last, said = now, ""
		case errors.As(err, &bad):
			last, said = now, ""
			b.log.Error("policy refused; the last good one stays in force", "error", err)
		case errors.Is(err, store.ErrNotLeader), ctx.Err() != nil: // it may become the leader
		case said != now:
			said = now
			b.log.Error("the changed policy file is not in force yet: it is tried again", "error", err)
		}
	}
}
