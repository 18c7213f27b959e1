package node

import (
	"context"
	"slices"
	"testing"
)

// A part that ends early stops no other part, and the parts are stopped one after the other, in
// their order.
func TestPartsAreStoppedInOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := parts{ctx: ctx}
	var order []string
	early, first, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.add(func() { close(early) })
	p.addStopped(func() { <-first }, func() {
		order = append(order, "first")
		close(first)
	})
	p.addStopped(func() { <-second }, func() {
		<-first
		order = append(order, "second")
		close(second)
	})
	running := false
	p.add(func() {
		<-early
		running = ctx.Err() == nil
		cancel()
	})
	if err := p.group.Run(); err != nil || !running || !slices.Equal(order, []string{"first", "second"}) {
		t.Errorf("%v; %v; stopped %q", err, running, order)
	}
}
