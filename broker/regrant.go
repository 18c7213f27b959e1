package broker

// Regrant has what the policy gives applications worked out anew, for whom something else
// is known than before, with the next round at the latest.
func (b *Broker) Regrant(flows []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.regrants++
	for _, flow := range flows {
		delete(b.grants, flow)
	}
}
