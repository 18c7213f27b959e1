package broker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"penstock/broker/policyfile"
	"penstock/broker/roles"
	"penstock/broker/store"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

// This file has the calls of operators that make a new version of the policy.

var (
	errSame = errors.New("this is in force already")
	// ErrLimitsAll means that a policy limits all applications.
	ErrLimitsAll = errors.New("limits all applications of the cluster")
)

// Apply implements cluster.OperatorsServer. A text that is already in force makes no new version.
func (o operators) Apply(ctx context.Context, r *cluster.ApplyRequest) (*cluster.PolicyVersion, error) {
	what := fmt.Sprintf("policy of %d bytes with SHA-256 %x, canary %d %%, base %d, force %v, note %q", len(r.GetText()), sha256.Sum256(r.GetText()), r.GetCanaryPercent(), r.GetBase(), r.GetForce(), clipped(r.GetNote()))
	return guarded(ctx, o.b, call{name: "Apply", needs: roles.QueueAdministrator, what: what}, func(who caller) (*cluster.PolicyVersion, error) {
		if err := checkNote(r.GetNote()); err != nil {
			return nil, err
		}
		if !utf8.Valid(r.GetText()) {
			return nil, invalidRequest(errors.New("the policy is not UTF-8"))
		}
		if r.GetCanaryPercent() > 99 {
			return nil, invalidRequest(fmt.Errorf("canary of %d %% of the nodes: use 1 to 99 %%", r.GetCanaryPercent()))
		}
		p, err := policyfile.Parse(r.GetText())
		if err == nil && !r.GetForce() {
			err = checkLimits(p, r.GetText())
		}
		if err != nil {
			return nil, invalidRequest(err)
		}
		return o.b.change(ctx, r.GetBase(), who, func(v *store.Version) error {
			if who.Role == roles.QueueAdministrator {
				if err := checkOwnQueues(*v, p, who, r); err != nil {
					return err
				}
			}
			percent := int(r.GetCanaryPercent())
			if v.Canary.Percent > 0 && (percent == 0 || !bytes.Equal(v.Canary.Text, r.GetText())) {
				return ErrCanary
			}
			if v.Number > 1 && v.Canary.Percent == percent && bytes.Equal(v.Text, r.GetText()) {
				return errSame
			}
			if v.Note = r.GetNote(); percent == 0 {
				v.Text = r.GetText()
				return nil
			}
			old, err := parse(*v)
			if err != nil {
				return err
			}
			if err := checkCanary(old, p); err != nil {
				return invalidRequest(err)
			}
			v.Canary, v.Note = store.Canary{Percent: percent, Text: r.GetText()}, noted(fmt.Sprintf("canary at %d %% of the nodes", percent), v.Note)
			return nil
		})
	})
}

// checkOwnQueues returns an error unless a policy differs from that of a version only below the queues that the caller
// administers. So the caller cannot change what applications of other queues get.
func checkOwnQueues(v store.Version, new *policy.Policy, who caller, r *cluster.ApplyRequest) error {
	old, err := parse(v)
	if err != nil {
		return err
	}
	if r.GetCanaryPercent() > 0 {
		return fmt.Errorf("%w: %q administers %q, and only an operator may begin a canary", errRole, who.name, who.Queues)
	}
	if what := differsOutside(old, new, func(queue string) bool {
		return who.Administers(queue) && !slices.Contains(who.Queues, queue)
	}, who.Queues); what != "" {
		return fmt.Errorf("%w: %q may change queues below %q only, and this policy changes %s", errRole, who.name, who.Queues, what)
	}
	return nil
}

// change makes a new version. If errSame says that it would be the same as the newest one, it returns that one.
func (b *Broker) change(ctx context.Context, base uint64, who caller, change func(*store.Version) error) (*cluster.PolicyVersion, error) {
	v, err := b.write(ctx, base, who.name, change)
	if errors.Is(err, errSame) {
		v, err = b.options.Store.Latest(ctx)
	}
	if err != nil {
		return nil, err
	}
	return versionMessage(v), nil
}

func checkNote(note string) error {
	if len(note) > store.MaxNote || !utf8.ValidString(note) {
		return invalidRequest(fmt.Errorf("the note is too long or not UTF-8: use at most %d bytes", store.MaxNote))
	}
	return nil
}

// noted adds an operator's note to what the broker notes about a version.
func noted(what, note string) string {
	if note == "" {
		return what
	}
	what += ": " + note
	return string(bytes.ToValidUTF8([]byte(what[:min(len(what), store.MaxNote)]), nil))
}

// clipped returns the part of a text that a description has.
func clipped(text string) string { return text[:min(len(text), store.MaxNote)] }

// checkLimits returns an error if a rule limits all applications, which is seldom meant.
func checkLimits(p *policy.Policy, text []byte) error {
	for i := range p.Rules {
		if p.Rules[i].CatchAll() {
			return fmt.Errorf("line %d: rules[%d] %w, because its patterns match everything: select applications, or give --force if you mean it", policyfile.RuleLines(text)[i], i, ErrLimitsAll)
		}
	}
	return nil
}

// KillSwitch implements cluster.OperatorsServer.
func (o operators) KillSwitch(ctx context.Context, r *cluster.KillSwitchRequest) (*cluster.PolicyVersion, error) {
	word := map[bool]string{true: "on", false: "off"}[r.GetOn()]
	what := fmt.Sprintf("kill switch %s, note %q", word, clipped(r.GetNote()))
	return guarded(ctx, o.b, call{name: "KillSwitch", needs: roles.Operator, what: what, urgent: r.GetOn()}, func(who caller) (*cluster.PolicyVersion, error) {
		if err := checkNote(r.GetNote()); err != nil {
			return nil, err
		}
		return o.b.change(ctx, 0, who, func(v *store.Version) error {
			if v.Off == r.GetOn() {
				return errSame
			}
			v.Off, v.Note = r.GetOn(), noted("kill switch "+word, r.GetNote())
			return nil
		})
	})
}

// EndCanary implements cluster.OperatorsServer.
func (o operators) EndCanary(ctx context.Context, r *cluster.EndCanaryRequest) (*cluster.PolicyVersion, error) {
	word := map[bool]string{true: "completed", false: "taken back"}[r.GetComplete()]
	what := fmt.Sprintf("canary %s, base %d, note %q", word, r.GetBase(), clipped(r.GetNote()))
	return guarded(ctx, o.b, call{name: "EndCanary", needs: roles.Operator, what: what}, func(who caller) (*cluster.PolicyVersion, error) {
		if err := checkNote(r.GetNote()); err != nil {
			return nil, err
		}
		return o.b.change(ctx, r.GetBase(), who, func(v *store.Version) error {
			if v.Canary.Percent == 0 {
				return fmt.Errorf("%w: begin one with `penstock policy apply --canary`", errNoCanary)
			}
			if r.GetComplete() {
				v.Text = v.Canary.Text
			}
			v.Canary, v.Note = store.Canary{}, noted("canary "+word, r.GetNote())
			return nil
		})
	})
}

// SetWeight implements cluster.OperatorsServer.
func (o operators) SetWeight(ctx context.Context, r *cluster.SetWeightRequest) (*cluster.PolicyVersion, error) {
	name, weight := r.GetApplication(), r.GetWeight()
	what := fmt.Sprintf("weight of %q set to %d, force %v", clipped(name), weight, r.GetForce())
	if weight == 0 {
		what = fmt.Sprintf("weight of %q removed", clipped(name))
	}
	return guarded(ctx, o.b, call{name: "SetWeight", needs: roles.QueueAdministrator, what: what}, func(who caller) (*cluster.PolicyVersion, error) {
		switch {
		case name == "" || len(name) > cluster.MaxName || !utf8.ValidString(name):
			return nil, invalidRequest(fmt.Errorf("an application's id has 1 to %d bytes", cluster.MaxName))
		case weight > policy.MaxWeight:
			return nil, invalidRequest(fmt.Errorf("weight %d: use 1 to %d", weight, policy.MaxWeight))
		}
		facts := o.b.options.Facts(name)
		facts.Flow = name
		if queue := facts.Queue; who.Role == roles.QueueAdministrator && !who.Administers(queue) {
			if queue == "" {
				queue = "not known"
			}
			return nil, fmt.Errorf("%w: %q may set weights of applications in %q only, and the queue of %s is %s", errRole, who.name, who.Queues, name, queue)
		}
		known := o.b.known(name)
		return o.b.change(ctx, 0, who, func(v *store.Version) error {
			if who.Role == roles.QueueAdministrator {
				if err := checkOwnWeight(*v, facts, who); err != nil {
					return err
				}
			}
			return o.b.setWeight(v, name, int(weight), known || r.GetForce())
		})
	})
}

// checkOwnWeight returns an error unless an application whose weight is set competes only with applications in queues that the
// caller administers: the nearest queue with a weight must be one of them, under all policies of a version.
func checkOwnWeight(v store.Version, f policy.Facts, who caller) error {
	p, err := parse(v)
	if err != nil {
		return err
	}
	policies := []*policy.Policy{p}
	if trial, err := newCanary(v); err != nil {
		return err
	} else if trial != nil {
		policies = append(policies, trial.policy)
	}
	for _, p := range policies {
		p.Set = map[string]int{f.Flow: 1}
		if !who.Administers(p.Grant(f).Queue) {
			return fmt.Errorf("%w: %q administers %q, and no queue of these that has %s has a weight: its weight would count against applications of other queues; ask an operator to give the queue a weight",
				errRole, who.name, who.Queues, f.Flow)
		}
	}
	return nil
}

// setWeight changes the weight of an application in a version; 0 removes it. known means that the application exists, or that
// the caller says so.
func (b *Broker) setWeight(v *store.Version, name string, weight int, known bool) error {
	_, set := v.Weights[name]
	switch {
	case weight == 0 && !set:
		return fmt.Errorf("%s %w", name, errNotSet)
	case weight == 0:
		delete(v.Weights, name)
		v.Note = "weight of " + name + " removed"
		return nil
	case !set && !known:
		return fmt.Errorf("%w: %s is not at work at any node, and no cluster manager knows it; check the spelling, or set the weight in advance with --force", errUnknownApplication, name)
	case !set && len(v.Weights) >= store.MaxWeights:
		return invalidRequest(fmt.Errorf("%d applications have a weight set, the most that is possible: remove some with unset-weight, or write a rule", len(v.Weights)))
	}
	b.mu.Lock()
	if _, known := b.lastActive[name]; known { // otherwise refresh adds it
		b.lastActive[name] = time.Now()
	}
	b.mu.Unlock()
	v.Weights[name] = weight
	v.Note = fmt.Sprintf("weight of %s set to %d", name, weight)
	return nil
}
