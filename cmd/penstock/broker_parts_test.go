package main

import (
	"context"
	"testing"
)

// A single broker has no election to run. That part ends at once, and the broker must continue.
func TestAPartThatEndsStopsNoOther(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := newParts(ctx)
	ended := make(chan struct{})
	p.add(func(context.Context) { close(ended) })
	stopped := false
	p.add(func(ctx context.Context) {
		<-ended
		stopped = ctx.Err() != nil
		cancel()
		<-ctx.Done()
	})
	if err := p.run(); err != nil || stopped {
		t.Errorf("stopped early: %v; %v", stopped, err)
	}
}
