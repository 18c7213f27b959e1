package control

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"penstock/core/ladder"
	"penstock/node/control/gate"
)

// This file keeps the gate as the policy asks: its process, its rules and its marks.

// running is a gate with its present rules. mu protects flows.
type running struct {
	*gate.Gate
	mu      sync.Mutex
	flows   []string // the flow of class n is flows[n-1]
	rules   []gate.Rule
	pass    []int
	watched []string
	places  []string
}

// applyGate starts, changes or ends the gate, as the policy asks for. why is the examiner's answer; nil if the node has no gate.
func (c *Control) applyGate(w Want, holds []*decision, why map[string]error) {
	var places, flows []string
	for _, h := range holds {
		if !h.taken.IsGate() {
			continue
		}
		if !slices.Contains(places, h.place.Path) {
			places = append(places, h.place.Path)
		}
		if !slices.Contains(flows, h.Flow) {
			flows = append(flows, h.Flow)
		}
	}
	rules := gateRules(w.Processes, flows, holds)
	var watch []string
	for _, p := range w.Places {
		if w.Enforce && why != nil && why[p.Path] == nil {
			watch = append(watch, p.Path)
		}
	}
	err := c.changeGate(watch, places, flows, rules)
	if err != nil {
		c.status.Error = err.Error()
	}
	for _, h := range holds {
		if h.taken.IsGate() {
			if h.Holds = err == nil; err != nil {
				h.Error = err.Error()
			}
		}
	}
}

// gateRules returns the gate's rules; the gate holds flows. A process belongs to the first entry that matches it. If
// the gate does not hold that entry, the process passes at the gate. So do the processes of a cgroup that is held by
// its limits or by the freezer, even if an earlier entry matches them: they would be held twice.
func gateRules(processes []Process, flows []string, holds []*decision) (rules []gate.Rule) {
	for _, h := range holds {
		if rule := (gate.Rule{UID: gate.AnyUser, CgroupPrefix: h.process.Cgroup}); (h.limitsCgroup() || h.taken == ladder.Freezer) &&
			!slices.Contains(flows, h.Flow) && !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	for _, p := range processes {
		class := uint32(slices.Index(flows, p.Flow) + 1)
		rules = append(rules, gate.Rule{Class: class, UID: p.UID, Comm: p.Command, CgroupPrefix: p.Cgroup})
	}
	return rules
}

// changeGate makes the gate hold the flows' processes on the file systems of places, and watch the other
// file systems of the policy. A file system is watched early, because the kernel never reports operations
// on a file that was opened before.
func (c *Control) changeGate(watch, places, flows []string, rules []gate.Rule) error {
	if g := c.gate; g != nil {
		select {
		case <-g.Done():
			c.failed = time.Now()
			c.options.Log.Error("the gate has ended; what it held continues", "error", g.Err(), "again_in", retryAfter)
			c.gate = nil
		default:
		}
	}
	if len(watch) == 0 {
		if c.gate == nil {
			return nil
		}
		err := c.gate.Close()
		c.gate = nil
		return err
	}
	if c.gate == nil {
		if wait := retryAfter - time.Since(c.failed); wait > 0 && !c.failed.IsZero() {
			return fmt.Errorf("the gate has ended; the next start is in %v", wait.Round(time.Second))
		}
		if err := c.startGate(); err != nil {
			c.failed = time.Now()
			return err
		}
	}
	g := c.gate
	if pass := c.options.Protected(); !slices.Equal(pass, g.pass) {
		if err := g.Pass(pass); err != nil {
			return err
		}
		g.pass = pass
	}
	if !slices.Equal(rules, g.rules) || !slices.Equal(flows, g.flows) {
		if err := g.Classes(nil); err != nil { // nothing is held while classes change their flows
			return err
		}
		g.setFlows(flows)
		if err := g.Classes(rules); err != nil {
			g.rules = nil
			return err
		}
		g.rules = rules
	}
	for _, p := range watch {
		if !slices.Contains(g.watched, p) {
			if err := g.Watch(p); err != nil {
				return err
			}
			g.watched = append(g.watched, p)
		}
	}
	for _, p := range g.places {
		if !slices.Contains(places, p) {
			if err := g.Unmark(p); err != nil {
				return err
			}
		}
	}
	g.places = slices.DeleteFunc(g.places, func(p string) bool { return !slices.Contains(places, p) })
	for _, p := range places {
		if slices.Contains(g.places, p) {
			continue
		}
		if err := g.Mark(p); err != nil {
			return err
		}
		g.places = append(g.places, p)
	}
	return nil
}

func (c *Control) startGate() error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	r := &running{}
	o := c.options.Gate
	o.Journal, o.HoldAtMost, o.ReadsOnly = c.journal, holdAtMost, !c.machine[ladder.Gate].OK
	o.Held = func(request gate.Request) {
		allow := func() { _ = r.Gate.Allow(request.ID) } // after an error the gate has ended, and everything passes
		flow, ok := r.flow(request.Class)
		if !ok {
			allow()
			return
		}
		c.options.Held(flow, request, allow)
	}
	g, err := gate.Start(ctx, o)
	if err != nil {
		return err
	}
	r.Gate = g
	c.gate = r
	if missing := g.Missing(); missing != "" {
		c.options.Log.Warn("the system does not permit all protections of the gate process; the gate works, but a lack of memory or CPU time may end it", "missing", missing)
	}
	return nil
}

func (r *running) setFlows(flows []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flows = flows
}

// flow returns the flow of a class.
func (r *running) flow(class uint32) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if class < 1 || int(class) > len(r.flows) {
		return "", false
	}
	return r.flows[class-1], true
}
