package experiment

import (
	"context"
	"time"
)

// Pause waits for d and returns nil. If ctx ends earlier, Pause returns the error of ctx at once.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
