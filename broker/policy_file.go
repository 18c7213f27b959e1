package broker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"penstock/broker/audit"
	"penstock/broker/policyfile"
	"penstock/broker/store"
	"penstock/settings"
)

const (
	filePollInterval = 500 * time.Millisecond
	// fileTimeout is the maximum time of one attempt to apply a policy file: three requests to
	// the store.
	fileTimeout = 3 * storeTimeout
)

// fileAuthor is the author of versions that come from a policy file. The note of such a version is
// the file's path.
const fileAuthor = "policy file"

// ApplyFile makes the text of a policy file the newest version, unless that text is in force
// already, or equals the last version that came from a file. So a version that an operator applied
// later stays in force until the file changes. A file with mistakes is refused.
func (b *Broker) ApplyFile(ctx context.Context, file string) error {
	text, err := settings.Read(file, policyfile.MaxBytes)
	if err != nil {
		return err
	}
	p, err := policyfile.Parse(text)
	if err != nil {
		return invalidFileError{fmt.Errorf("%s: %w", file, err)}
	}
	latest, err := b.options.Store.Latest(ctx)
	if err != nil || bytes.Equal(latest.Text, text) {
		return err
	}
	if latest.Canary.Percent > 0 {
		return ErrCanary
	}
	taken := false
	if err := b.options.Store.History(ctx, store.Keep, func(v store.Version) bool {
		taken = v.Author == fileAuthor && bytes.Equal(v.Text, text)
		return v.Author != fileAuthor
	}); err != nil || taken {
		return err
	}
	if err := checkLimits(p, text); err != nil && !b.options.LimitAll {
		return invalidFileError{fmt.Errorf("%s: %w (for a file of --policy: --policy-force)", file, err)}
	}
	record := audit.Record{Who: fileAuthor, By: "file", Call: "Apply", What: fmt.Sprintf("policy of %d bytes with SHA-256 %x from %s", len(text), sha256.Sum256(text), file)}
	err = b.audited(record, false, func() (uint64, error) {
		v, err := b.write(ctx, 0, fileAuthor, func(v *store.Version) error {
			if v.Canary.Percent > 0 {
				return ErrCanary
			}
			v.Text, v.Note = text, file[:min(len(file), store.MaxNote)]
			return nil
		})
		return v.Number, err
	})
	if errors.Is(err, errNotInForceYet) { // watchStore retries
		b.log.Warn("the policy file is stored but not in force yet", "error", err)
		return nil
	}
	return err
}

// invalidFileError is an error that lasts until the file changes.
type invalidFileError struct{ error }

func (e invalidFileError) Unwrap() error { return e.error }

// FollowFile applies the policy file each time it changes, until ctx ends. last is the fingerprint
// of the file when it was last applied.
func (b *Broker) FollowFile(ctx context.Context, file, last string) {
	said := "" // fingerprint of the file whose temporary error was logged
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
			b.log.Error("policy file refused; the policy in force stays", "error", err)
		case errors.Is(err, store.ErrNotLeader), ctx.Err() != nil: // this broker may become the leader
		case said != now:
			said = now
			b.log.Error("the changed policy file is not in force yet; retrying", "error", err)
		}
	}
}
