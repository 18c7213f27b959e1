package broker

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/wire/cluster"
)

// Only the leader answers: what a broker that does not lead could say of totals would be of
// the nodes that happen to report to it. Who leads stands in the refusal, for people in its
// message and for nodes in its trailer.

// leads is the epoch under which this broker leads, or the refusal of one that does not.
func (b *Broker) requireLeader() (epoch uint64, trailer metadata.MD, err error) {
	s := b.leadership.State()
	switch {
	case s.Leading:
		return s.Epoch, nil, nil
	case s.Leader == "":
		return 0, metadata.Pairs(cluster.LeaderKey, ""), status.Error(codes.Unavailable, "this broker does not lead, and does not know who does")
	}
	return 0, metadata.Pairs(cluster.LeaderKey, s.Leader), status.Errorf(codes.FailedPrecondition, "this broker does not lead: %s does", s.Leader)
}

// leadsStill says why a stream of an epoch ends, and where its node goes; nil: it goes on.
func (b *Broker) requireEpoch(epoch uint64) (trailer metadata.MD, err error) {
	s := b.leadership.State()
	if s.Leading && s.Epoch != epoch {
		return metadata.Pairs(cluster.LeaderKey, s.Leader), status.Error(codes.Unavailable, "this broker leads anew: report to it from the beginning")
	}
	_, trailer, err = b.requireLeader()
	return trailer, err
}

// Unary refuses calls other than streams where this broker does not lead.
func (b *Broker) Unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if _, trailer, err := b.requireLeader(); err != nil {
		_ = grpc.SetTrailer(ctx, trailer) // it fails only outside of a call
		return nil, err
	}
	return handle(ctx, request)
}

// begin makes the epoch this broker's own: what nodes said under another one counts no more,
// and they have to be waited for. b.mu is held.
func (b *Broker) beginEpoch(epoch uint64) {
	if b.epoch == epoch {
		return
	}
	b.epoch, b.started = epoch, time.Now()
	b.startup.Reset(time.Since(b.created))
	if epoch != 0 { // until now it has not seen who is at work
		for name := range b.lastActive {
			b.lastActive[name] = b.started
		}
	}
	for name, s := range b.sessions {
		b.drop(name, s)
	}
}

// succeed takes up what has changed in who leads. A stream of another epoch ends with its
// node's next report.
func (b *Broker) updateLeadership() {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.leadership.State() // not from before another call's
	if !s.Leading {
		s.Epoch = 0
	}
	b.beginEpoch(s.Epoch)
}
