// Package poll waits for conditions that no event announces. It checks a condition again and again.
package poll

import (
	"context"
	"time"
)

// Until calls done at once and then once per interval, until done returns true or an error. Until
// returns that error. If ctx ends first, Until returns the error of ctx.
func Until(ctx context.Context, interval time.Duration, done func() (bool, error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
