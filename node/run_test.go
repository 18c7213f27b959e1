package node

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// A part that ends early stops no other part, and the parts are stopped one after the other, in
// their order.
func TestPartsAreStoppedInOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := newParts(ctx, slog.New(slog.DiscardHandler), time.Hour)
	var order []string
	early, first, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.add("early", func() { close(early) })
	p.addStopped("first", func() { <-first }, func() {
		order = append(order, "first")
		close(first)
	})
	p.addStopped("second", func() { <-second }, func() {
		<-first
		order = append(order, "second")
		close(second)
	})
	running := false
	p.add("last", func() {
		<-early
		running = ctx.Err() == nil
		cancel()
	})
	if err := p.group.Run(); err != nil || !running || !slices.Equal(order, []string{"first", "second"}) {
		t.Errorf("%v; %v; stopped %q", err, running, order)
	}
}

// A part that waits for a disk that hangs delays the end for at most the given time.
func TestAPartThatHangsIsLeftBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var logs syncBuffer
	p := newParts(ctx, slog.New(slog.NewTextHandler(&logs, nil)), 100*time.Millisecond)
	hold := make(chan struct{})
	defer close(hold)
	stopped := make(chan struct{})
	p.add("run hangs", func() { <-hold })
	p.addStopped("stop hangs", func() {}, func() { <-hold })
	p.addStopped("sound", func() {}, func() { close(stopped) })
	ended := make(chan error, 1)
	go func() { ended <- p.group.Run() }()
	select {
	case <-ended:
		t.Fatal("ended before the context")
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Fatal("a part that hangs keeps the daemon alive")
	}
	<-stopped
	for _, part := range []string{"run hangs", "stop hangs"} {
		if !strings.Contains(logs.String(), `part="`+part+`"`) {
			t.Errorf("not named: %s\n%s", part, logs.String())
		}
	}
}
