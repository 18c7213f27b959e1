package broker

import (
	"context"
	"time"

	"penstock/broker/policyfile"
	"penstock/settings"
)

const look = 500 * time.Millisecond

// Follow takes the policy file each time it changes from what it was by its fingerprint,
// until ctx ends. A bad file never replaces a good one.
func (b *Broker) Follow(ctx context.Context, file, last string) {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := settings.Fingerprint(file)
		if now == last {
			continue
		}
		last = now
		p, err := policyfile.Load(file)
		if err != nil {
			b.log.Error("policy refused; the last good one stays in force", "error", err)
			continue
		}
		b.log.Info("policy", "version", b.SetPolicy(p), "rules", len(p.Rules), "queues", len(p.Queues))
	}
}
