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

const look = 500 * time.Millisecond

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
		return fmt.Errorf("%s: %w", file, err)
	}
	latest, err := b.o.Store.Latest(ctx)
	if err != nil || bytes.Equal(latest.Text, text) {
		return err
	}
	history, err := b.o.Store.History(ctx, store.Keep)
	if err != nil {
		return err
	}
	for _, v := range history {
		if v.Author == fileAuthor {
			if bytes.Equal(v.Text, text) {
				return nil
			}
			break
		}
	}
	_, err = b.write(ctx, 0, fileAuthor, func(v *store.Version) error {
		v.Text, v.Note = text, file[:min(len(file), store.MaxNote)]
		return nil
	})
	return err
}

// Follow takes the policy file each time it changes from what it was by its fingerprint,
// until ctx ends.
func (b *Broker) Follow(ctx context.Context, file, last string) {
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
		err := b.TakeFile(ctx, file)
		if errors.Is(err, store.ErrNotLeader) {
			continue // it may become the leader
		}
		last = now
		if err != nil {
			b.log.Error("policy refused; the last good one stays in force", "error", err)
		}
	}
}
