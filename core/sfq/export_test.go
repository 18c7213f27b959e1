package sfq

// VirtualTime returns v of the root, for scenarios.
func (s *Scheduler) VirtualTime() string { return s.queues[0].v.String() }

// V returns v of the root as a number.
func (s *Scheduler) V() float64 { return s.queues[0].v.float() }

// Finish returns a flow's finish tag.
func (s *Scheduler) Finish(f Flow) string { return s.flows[f].finish().String() }

// Weight returns a flow's weight.
func (s *Scheduler) Weight(f Flow) int32 { return s.flows[f].weight }

func (a tag) float() float64 { return float64(a.hi)*(1<<32) + float64(a.lo)/(1<<32) }
