package broker

import (
	"time"

	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/core/slowdown"
	"penstock/wire/cluster"
)

const (
	maxSlowdowns = 10_000 // applications with an estimate; any further ones keep the policy's weight
	// slowdownRetention is how long the estimate of an application is kept while the application is at no node.
	slowdownRetention = 10 * time.Minute
	// slowdownPeriods is the number of the nodes' periods between two changes of weights. A change is visible in reports two to
	// three periods later, and the controller of package slowdown tolerates a delay of three changes.
	slowdownPeriods = 2
)

// slowdowns is the state of the estimates, and of the queues with a goal (policy.EqualSlowdown).
type slowdowns struct {
	apps   map[string]*slowed
	groups map[string]*slowdown.Group // by path of the queue
	at     time.Duration              // of the last samples
	count  int                        // applications at work in queues with a goal
	next   time.Duration              // when weights move next
	spread float64                    // largest slowdown.Spread of a queue; 0: no queue has a goal
}

// slowed is the state of one application.
type slowed struct {
	slowdown.App
	at    time.Duration // when it was last at a node
	moved bool          // its queue has a goal
}

// applySlowdowns updates the estimates of all applications at work, and multiplies the weights of those in queues with
// a goal. grants belong to names, which are sorted by application number. b.mu is held. The cost is two look-ups for
// each application.
func (b *Broker) applySlowdowns(names []string, grants []policy.Grant) {
	now := time.Since(b.created)
	s := &b.slowdowns
	passed := min(now-s.at, silentPeriods*maxPeriod)
	sampled := passed >= rightsInterval/2 // not when new applications cause a computation
	if s.count = 0; sampled {
		s.at = now
	}
	if s.apps == nil {
		s.apps = map[string]*slowed{}
	}
	move := now >= s.next && b.startup.Complete(now, 0)
	if move {
		s.next = now + slowdownPeriods*b.longestPeriod()
	}
	members := map[string][]int{} // indexes by queue
	var paths []string
	for i, name := range names {
		a := s.apps[name]
		if a == nil {
			if len(s.apps) >= maxSlowdowns {
				continue
			}
			a = &slowed{}
			s.apps[name] = a
		}
		a.at = now
		if sampled {
			a.Add(b.sample(name), passed)
		}
		if move {
			a.Take()
		}
		if a.Goal, a.moved = b.policy.GoalOf(grants[i]); !a.moved {
			a.Release()
			continue
		}
		s.count++
		path := grants[i].Queue
		if members[path] == nil {
			paths = append(paths, path)
		}
		members[path] = append(members[path], i)
	}
	s.update(paths, members, names, grants, move)
	for name, a := range s.apps {
		if now-a.at > slowdownRetention {
			delete(s.apps, name)
		}
	}
}

// update moves the factors of the queues' members, if it is time, and sets the weights of their grants.
func (s *slowdowns) update(paths []string, members map[string][]int, names []string, grants []policy.Grant, move bool) {
	old := s.groups
	s.groups, s.spread = map[string]*slowdown.Group{}, 0
	for _, path := range paths {
		g := old[path]
		if g == nil {
			g = &slowdown.Group{}
		}
		s.groups[path] = g
		in := members[path]
		apps, weights, factors := make([]*slowdown.App, len(in)), make([]int, len(in)), make([]float64, len(in))
		for k, i := range in {
			apps[k], weights[k] = &s.apps[names[i]].App, grants[i].Weight
		}
		if move {
			g.Update(apps)
		}
		for k, a := range apps {
			factors[k] = a.Factor()
		}
		for k, w := range slowdown.Weights(weights, factors) {
			grants[in[k]].Weight = w
		}
		s.spread = max(s.spread, slowdown.Spread(apps))
	}
}

// sample returns what the nodes last reported about an application.
func (b *Broker) sample(name string) slowdown.Sample {
	const scale = 1000 // of streams in coord.Service
	total, _ := b.totals.Of(name)
	return slowdown.Sample{Streams: float64(total.Streams) / scale, Waiting: float64(total.Waiting) / scale, Hindered: float64(total.Hindered) / scale,
		Tasks: float64(b.options.Tasks(name)), Used: float64(total.Used) / coord.Second, Touched: float64(total.Touched) / coord.Second}
}

// longestPeriod returns the longest time between two reports of a node. b.mu is held.
func (b *Broker) longestPeriod() time.Duration {
	longest := minPeriod
	for _, s := range b.sessions {
		longest = max(longest, s.period)
	}
	return longest
}

// describeSlowdown adds an application's estimate and its factor, if there are some. b.mu is held.
func (b *Broker) describeSlowdown(name string, s *cluster.ApplicationState) {
	a := b.slowdowns.apps[name]
	if a == nil {
		return
	}
	if a.Known() {
		s.Slowdown, s.SlowdownOverall, s.Waits = a.Slowdown(), a.Overall(), a.Waiting()
	}
	if a.moved {
		s.Factor, s.SlowdownGoal = a.Factor(), a.Goal
	}
}
