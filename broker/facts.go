package broker

// FactsChanged notes that the facts of some applications have changed. Their rights are computed
// again within rightsInterval.
func (b *Broker) FactsChanged(flows []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.factsVersion++
	for _, flow := range flows {
		if _, known := b.grants[flow]; known { // the old grant stays in force until then
			b.staleGrants[flow] = struct{}{}
		}
	}
}
