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
	look = 500 * time.Millisecond
	// fileWait bounds one attempt to take a policy file: three questions to the store.
	fileWait = 3 * storeWait
)

// fileAuthor is the author of versions that come from a policy file; their note is its name.
const fileAuthor = "policy file"

// TakeFile makes a policy file a new version, unless its text is in force or was the last
// that came from a file: what operators have applied since holds until the file changes.
// A bad file never replaces a good one.
func (b *Broker) TakeFile(ctx context.Context, file string) error {
	text, err := settings.Read(file, policyfile.MaxBytes)
	if err != nil {
		return err
	}
	if _, err := policyfile.Parse(text); err != nil {
		return badFileError{fmt.Errorf("%s: %w", file, err)}
	}
	latest, err := b.o.Store.Latest(ctx)
	if err != nil || bytes.Equal(latest.Text, text) {
		return err
	}
	taken := false
	if err := b.o.Store.History(ctx, store.Keep, func(v store.Version) bool {
		taken = v.Author == fileAuthor && bytes.Equal(v.Text, text)
		return v.Author != fileAuthor
	}); err != nil || taken {
		return err
	}
	_, err = b.write(ctx, 0, fileAuthor, func(v *store.Version) error {
		v.Text, v.Note = text, file[:min(len(file), store.MaxNote)]
		return nil
	})
	if errors.Is(err, errNotYet) { // watch goes on trying
		b.log.Warn("the policy file's version waits", "error", err)
		return nil
	}
	return err
}

// badFileError: the file will be no better until it is another.
type badFileError struct{ error }

// Follow takes the policy file each time it changes from what it was by its fingerprint,
// until ctx ends.
func (b *Broker) Follow(ctx context.Context, file, last string) {
	said := "" // the fingerprint for which an error that passes was said
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := settings.Fingerprint(file)
		if now == last || !b.lead.State().Leading {
			continue
		}
		within, cancel := context.WithTimeout(ctx, fileWait)
		err := b.TakeFile(within, file)
		cancel()
		var bad badFileError
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
