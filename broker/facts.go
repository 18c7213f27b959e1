package broker

// Regrant has what the policy gives applications worked out anew, for whom something else
// is known than before, with the next round at the latest.
func (b *Broker) FactsChanged(flows []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.factsVersion++
	for _, flow := range flows {
		if _, known := b.grants[flow]; known { // the old one holds until then
			b.staleGrants[flow] = struct{}{}
		}
	}
}
