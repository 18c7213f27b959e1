package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"penstock/broker/policyfile"
	"penstock/broker/store"
	"penstock/core/policy"
)

const (
	// noPolicy is what holds while the store has no version.
	emptyPolicy = "default: 1\n"
	// longGone is how long an application with a set weight has not been at work before the
	// next version is without it.
	weightRetention = 24 * time.Hour
	// storeWait bounds one question to the store, and how long a failed one is not repeated.
	storeTimeout = 10 * time.Second
	storeRetry   = time.Second
	// attempts bounds how often a version is written anew because another broker was first.
	maxWriteAttempts = 5
	// maxPolicyWarnings is the number of warnings about one version that are logged.
	maxPolicyWarnings = 10
)

// errNotYet: what was written will be in force, when the store can be read again.
var errNotInForceYet = errors.New("is written, but not in force here yet")

// watch takes each new version into force, by whomever it was written, until ctx ends.
func (b *Broker) watchStore(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.options.Store.Changes():
		}
		for {
			err := b.refresh(ctx)
			if err == nil || ctx.Err() != nil {
				break
			}
			b.log.Error("the newest policy is not in force", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(storeRetry):
			}
		}
	}
}

// refresh takes the store's newest version into force, if another one is.
func (b *Broker) refresh(ctx context.Context) error {
	b.refreshMu.Lock()
	defer b.refreshMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	v, err := b.options.Store.Latest(ctx)
	if err != nil {
		return fmt.Errorf("ask the store for the newest policy: %w", err)
	}
	b.mu.Lock()
	same, regrants := sameVersion(v, b.current), b.factsVersion
	var names []string // of who is at work
	for name := range b.rights {
		names = append(names, name)
	}
	b.mu.Unlock()
	if same {
		return nil
	}
	p, err := parse(v)
	if err != nil {
		return fmt.Errorf("version %d of the policy is none for this program: %w", v.Number, err)
	}
	// As in match; at once for all, so that nobody is without a right meanwhile.
	grants := make(map[string]policy.Grant, len(names))
	for _, name := range names {
		grants[name] = p.Grant(b.options.Facts(name))
	}
	stale := map[string]struct{}{}
	b.mu.Lock()
	if b.factsVersion != regrants { // some facts may be older than those that were told meanwhile
		for name := range grants {
			stale[name] = struct{}{}
		}
	}
	b.policy, b.version, b.current, b.grants = p, v.Number, v, grants
	b.staleGrants = stale
	now := time.Now()
	for name := range p.Set {
		if _, known := b.lastActive[name]; !known {
			b.lastActive[name] = now
		}
	}
	maps.DeleteFunc(b.lastActive, func(name string, _ time.Time) bool { return p.Set[name] == 0 })
	b.computeRights()
	b.mu.Unlock()
	b.log.Info("policy", "version", v.Number, "author", v.Author, "rules", len(p.Rules), "queues", len(p.Queues), "set", len(p.Set))
	for i, w := range policyfile.Warnings(v.Text) {
		if i == maxPolicyWarnings {
			b.log.Warn("more rules of the policy have no effect; `penstock policy check` lists them")
			break
		}
		b.log.Warn("a rule of the policy has no effect", "version", v.Number, "rule", w)
	}
	return nil
}

// sameVersion tells whether two are one. The number is not enough: where the store has lost
// what it had, versions begin at 1 anew.
func sameVersion(v, o store.Version) bool {
	return v.Number == o.Number && v.Time.Equal(o.Time) && bytes.Equal(v.Text, o.Text) && maps.Equal(v.Weights, o.Weights)
}

// parse reads a version's policy and puts the set weights above it.
func parse(v store.Version) (*policy.Policy, error) {
	text := v.Text
	if len(text) == 0 {
		text = []byte(emptyPolicy)
	}
	p, err := policyfile.Parse(text)
	if err != nil {
		return nil, err
	}
	p.Set = v.Weights
	return p, nil
}

// noteWork remembers which applications with a set weight are at work. b.mu is held.
func (b *Broker) noteActivity(now time.Time) {
	for name := range b.lastActive {
		if _, there := b.totals.Of(name); there {
			b.lastActive[name] = now
		}
	}
}

// write makes a new version out of the newest one, without the set weights of applications
// that are long gone; it is in force when write returns without an error. base is the number of the version
// that the change was made from; 0: whichever is the newest. Errors: store.ErrConflict,
// errNotYet, and what change, the store and the bounds of a version say.
func (b *Broker) write(ctx context.Context, base uint64, author string, change func(*store.Version) error) (store.Version, error) {
	b.writeMu.Lock()
	defer b.writeMu.Unlock()
	b.updateLeadership() // with a leadership that has just begun, nobody has been seen at work
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, storeTimeout) // others wait to write
	defer cancel()
	for attempt := 1; ; attempt++ {
		v, err := b.options.Store.Latest(ctx)
		if err != nil {
			return store.Version{}, err
		}
		if base != 0 && v.Number != base {
			return store.Version{}, fmt.Errorf("%w: version %d is in force, and this change was made from %d", store.ErrConflict, v.Number, base)
		}
		if v.Number == 0 {
			v.Text = []byte(emptyPolicy)
		}
		v.Number, v.Author, v.Note, v.Time = v.Number+1, author, "", time.Now()
		if v.Weights == nil {
			v.Weights = map[string]int{}
		}
		b.mu.Lock()
		maps.DeleteFunc(v.Weights, func(name string, _ int) bool {
			at, known := b.lastActive[name]
			return known && v.Time.Sub(at) > weightRetention
		})
		b.mu.Unlock()
		if err := change(&v); err != nil {
			return store.Version{}, err
		}
		if _, err := parse(v); err != nil {
			return store.Version{}, err
		}
		err = b.options.Store.Append(ctx, v)
		if errors.Is(err, store.ErrConflict) && base == 0 && attempt < maxWriteAttempts {
			continue
		}
		if err != nil {
			return store.Version{}, err
		}
		if err := b.refresh(parent); err != nil {
			return v, fmt.Errorf("version %d %w: %v", v.Number, errNotInForceYet, err) // %v: it is not the write that has failed
		}
		return v, nil
	}
}
