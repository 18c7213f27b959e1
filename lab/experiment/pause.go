package experiment

import (
	"context"
	"time"
)

// Pause returns after d, or as soon as ctx ends, with the error of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
