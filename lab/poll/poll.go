// Package poll waits for what gives no event, by asking again and again.
package poll

import (
	"context"
	"time"
)

// Until calls done at once and then once in every interval, until it returns true or an error, which
// Until returns. When ctx ends before, Until returns the error of ctx.
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
