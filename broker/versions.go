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
	// emptyPolicy is in force while the store has no version.
	emptyPolicy = "default: 1\n"
	// weightRetention is the time without work after which the next version drops the weight set
	// for an application.
	weightRetention = 24 * time.Hour
	// storeTimeout is the maximum time of one request to the store, and storeRetry is the wait
	// after a failure.
	storeTimeout = 10 * time.Second
	storeRetry   = time.Second
	// maxWriteAttempts is the maximum number of attempts to write a version when other brokers
	// write at the same time.
	maxWriteAttempts = 5
	// maxPolicyWarnings is the number of warnings about one version that are logged.
	maxPolicyWarnings = 10
)

// errNotInForceYet means that a version is stored, and will be in force once the store can be read.
var errNotInForceYet = errors.New("is stored, but not in force on this broker yet")

// watchStore puts each new version in force, including those of other brokers, until ctx ends.
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
			b.log.Error("the newest policy cannot be put in force; retrying", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(storeRetry):
			}
		}
	}
}

// refresh puts the store's newest version in force, unless it already is.
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
	same, facts := sameVersion(v, b.current), b.factsVersion
	var names []string // of applications at work
	for name := range b.rights {
		names = append(names, name)
	}
	b.mu.Unlock()
	if same {
		return nil
	}
	p, err := parse(v)
	var trial *canary
	if err == nil {
		trial, err = newCanary(v)
	}
	if err != nil {
		return fmt.Errorf("read version %d of the policy: %w", v.Number, err)
	}
	// matchRules handles one application. Here, all applications change at once: otherwise some would
	// have no rights in between.
	grants := make(map[string]policy.Grant, len(names))
	for _, name := range names {
		f := b.options.Facts(name)
		grants[name] = p.Grant(f)
		if trial != nil {
			trial.grants[name] = trial.policy.Grant(f)
		}
	}
	stale := map[string]struct{}{}
	b.mu.Lock()
	if b.factsVersion != facts { // facts have changed meanwhile
		for name := range grants {
			stale[name] = struct{}{}
		}
	}
	b.policy, b.canary, b.version, b.current, b.grants = p, trial, v.Number, v, grants
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
	b.log.Info("policy in force", "version", v.Number, "author", v.Author, "rules", len(p.Rules), "queues", len(p.Queues), "set", len(p.Set), "kill_switch", v.Off, "canary_percent", v.Canary.Percent)
	for i, w := range policyfile.Warnings(v.Text) {
		if i == maxPolicyWarnings {
			b.log.Warn("more rules of the policy have no effect; `penstock policy check` lists them")
			break
		}
		b.log.Warn("a rule of the policy has no effect", "version", v.Number, "rule", w)
	}
	return nil
}

// sameVersion reports whether two versions are equal. Equal numbers are not enough: a store that
// lost its versions starts again at 1.
func sameVersion(v, o store.Version) bool {
	return v.Number == o.Number && v.Time.Equal(o.Time) && bytes.Equal(v.Text, o.Text) && maps.Equal(v.Weights, o.Weights) &&
		v.Off == o.Off && v.Canary.Percent == o.Canary.Percent && bytes.Equal(v.Canary.Text, o.Canary.Text)
}

// parse returns the policy of a version, with the weights set for single applications. The
// version's text was checked when it was applied.
func parse(v store.Version) (*policy.Policy, error) {
	text := v.Text
	if len(text) == 0 {
		text = []byte(emptyPolicy)
	}
	p, err := policyfile.ParseApplied(text)
	if err != nil {
		return nil, err
	}
	p.Set = v.Weights
	return p, nil
}

// noteActivity records which applications with a set weight are at work. b.mu is held.
func (b *Broker) noteActivity(now time.Time) {
	for name := range b.lastActive {
		if _, there := b.totals.Of(name); there {
			b.lastActive[name] = now
		}
	}
}

// write makes a new version from the newest one, and drops the weights of applications that have
// been idle for long. When write returns without an error, the version is in force. base is the
// version from which the change was made; 0: any. Errors: store.ErrConflict, errNotInForceYet, and
// the errors of change, of the store and of the limits of a version.
func (b *Broker) write(ctx context.Context, base uint64, author string, change func(*store.Version) error) (store.Version, error) {
	b.writeMu.Lock()
	defer b.writeMu.Unlock()
	b.updateLeadership() // a broker that has just begun to lead does not know yet which applications are at work
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, storeTimeout) // other writers wait for this one
	defer cancel()
	for attempt := 1; ; attempt++ {
		v, err := b.options.Store.Latest(ctx)
		if err != nil {
			return store.Version{}, err
		}
		if base != 0 && v.Number != base {
			return store.Version{}, fmt.Errorf("%w: version %d is in force, but this change was made from version %d", store.ErrConflict, v.Number, base)
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
		if _, err := newCanary(v); err != nil {
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
			return v, fmt.Errorf("version %d %w: %v", v.Number, errNotInForceYet, err) // %v: the write itself has not failed
		}
		return v, nil
	}
}
