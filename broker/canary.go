package broker

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"penstock/broker/policyfile"
	"penstock/broker/store"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

// A canary is a policy that a part of the nodes follows, so that a mistake in it reaches few machines. The broker
// computes the rights of all applications under both policies, and sends each node those of its own policy. Nodes are
// chosen by a hash of their names. So the choice stays the same when brokers or nodes restart, and a larger part contains
// each smaller one.

// canary is the canary in force.
type canary struct {
	percent int
	policy  *policy.Policy
	grants  map[string]policy.Grant // by application
	rights  map[string]right        // by application, as last computed
	paths   queuePaths
}

// newCanary returns the canary of a version; nil if the version has none.
func newCanary(v store.Version) (*canary, error) {
	if v.Canary.Percent == 0 {
		return nil, nil
	}
	p, err := policyfile.ParseApplied(v.Canary.Text)
	if err != nil {
		return nil, fmt.Errorf("the canary: %w", err)
	}
	p.Set = v.Weights
	return &canary{percent: v.Canary.Percent, policy: p, grants: map[string]policy.Grant{}, rights: map[string]right{}}, nil
}

// includes reports whether a node follows the canary's policy.
func (c *canary) includes(s *session) bool { return c != nil && s.place < c.percent*places/100 }

// places is the number of places that placeOf distinguishes.
const places = 1 << 20

// placeOf returns the place of a node, 0 to places-1. A canary has the nodes with the first places.
func placeOf(node string) int {
	sum := sha256.Sum256([]byte(node))
	return int(binary.BigEndian.Uint64(sum[:]) % places)
}

// computeRights computes the rights of applications at work. atWork are the grants of these applications under the
// others' policy. An application with a grant from before the canary may have no grant of the canary yet.
func (c *canary) computeRights(names []string, atWork map[string]policy.Grant) {
	if c == nil {
		return
	}
	grants, known := make([]policy.Grant, 0, len(names)), make([]string, 0, len(names))
	for _, name := range names {
		if g, ok := c.grants[name]; ok {
			grants, known = append(grants, g), append(known, name)
		}
	}
	clear(c.rights)
	for i, weight := range c.policy.Weights(grants) {
		c.rights[known[i]] = rightOf(grants[i], weight, c.paths.pathOf(c.policy, grants[i]))
	}
	if len(c.grants) > 2*len(names)+1000 { // most belong to applications that have ended
		for name := range c.grants {
			if _, there := atWork[name]; !there {
				delete(c.grants, name)
			}
		}
	}
}

// ErrCanary means that a policy cannot be changed while a canary is in force.
var ErrCanary = errors.New("a canary is in force: end it first with `penstock policy canary complete` or `penstock policy canary take-back`")

// checkCanary returns an error if a policy cannot be tried at a part of the nodes while the others follow another one.
func checkCanary(old, new *policy.Policy) error {
	for _, p := range []*policy.Policy{old, new} {
		if field := p.ClusterWide(); field != "" {
			return fmt.Errorf("no canary is possible with %q in the old or the new policy: the broker computes it for the whole cluster; apply the policy to all nodes", field)
		}
	}
	return nil
}

// modeOf returns the strongest mode that a policy allows its nodes. off means that the kill switch is on.
func modeOf(p *policy.Policy, off bool) cluster.Mode {
	switch {
	case off || p.Mode == policy.ModeOff:
		return cluster.Mode_MODE_OFF
	case p.Mode == policy.ModeObserve:
		return cluster.Mode_MODE_OBSERVE
	case p.Mode == policy.ModeEnforce:
		return cluster.Mode_MODE_ENFORCE
	}
	return cluster.Mode_MODE_UNKNOWN
}

// knownMode returns a mode from a report; MODE_UNKNOWN if this release does not know it.
func knownMode(m cluster.Mode) cluster.Mode {
	if _, known := cluster.Mode_name[int32(m)]; !known {
		return cluster.Mode_MODE_UNKNOWN
	}
	return m
}
