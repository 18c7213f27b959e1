package noderun

import (
	"context"
	"testing"
	"time"
)

// The process ends in time after a signal, whatever hangs, and is not ended after an orderly stop.
func TestTheEndComesInTime(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	end := make(chan struct{})
	ended := endInTime(ctx, 10*time.Millisecond, func() { close(end) })
	defer ended()
	early := make(chan struct{})
	endInTime(ctx, 10*time.Millisecond, func() { close(early) })()
	select {
	case <-end:
		t.Fatal("ended before the signal")
	case <-time.After(100 * time.Millisecond):
	}
	signal()
	select {
	case <-end:
	case <-time.After(time.Minute):
		t.Fatal("not ended")
	}
	select {
	case <-early:
		t.Fatal("ended after an orderly stop")
	case <-time.After(100 * time.Millisecond):
	}
}
