package experiment

import (
	"context"
	"time"
)

// Pause returns after d, or before that with the error of a context that ends.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
