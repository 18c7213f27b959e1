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

// Only the leader answers: another broker would have the totals of only those nodes that happen to
// report to it. A refusal names the leader, in its message for people and in its trailer for nodes.

// requireLeader returns the epoch under which this broker leads. If this broker does not lead, it
// returns the trailer and the error with which a call is refused.
func (b *Broker) requireLeader() (epoch uint64, trailer metadata.MD, err error) {
	s := b.leadership.State()
	switch {
	case s.Leading:
		return s.Epoch, nil, nil
	case s.Leader == "":
		return 0, metadata.Pairs(cluster.LeaderKey, ""), status.Error(codes.Unavailable, "this broker does not lead, and knows no leader")
	}
	return 0, metadata.Pairs(cluster.LeaderKey, s.Leader), status.Errorf(codes.FailedPrecondition, "this broker does not lead; the leader is %s", s.Leader)
}

// requireEpoch returns an error, and the trailer for it, unless this broker still leads under the
// epoch.
func (b *Broker) requireEpoch(epoch uint64) (trailer metadata.MD, err error) {
	s := b.leadership.State()
	if s.Leading && s.Epoch != epoch {
		return metadata.Pairs(cluster.LeaderKey, s.Leader), status.Error(codes.Unavailable, "leadership epoch changed; open a new stream")
	}
	_, trailer, err = b.requireLeader()
	return trailer, err
}

// Unary is an interceptor that refuses calls other than streams while this broker does not lead.
func (b *Broker) Unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if _, trailer, err := b.requireLeader(); err != nil {
		_ = grpc.SetTrailer(ctx, trailer) // fails only outside of a call
		return nil, err
	}
	return handle(ctx, request)
}

// beginEpoch begins an epoch of this broker; 0: this broker does not lead. Sessions of earlier
// epochs end. The totals are treated as incomplete until nodes have had the time to report. b.mu is
// held.
func (b *Broker) beginEpoch(epoch uint64) {
	if b.epoch == epoch {
		return
	}
	b.epoch, b.started = epoch, time.Now()
	b.startup.Reset(time.Since(b.created))
	b.orders, b.forecasts, b.deadlines = orders{at: time.Since(b.created)}, nil, nil // sessions end, but not their applications
	b.slowdowns = slowdowns{at: time.Since(b.created)}                               // a new leader begins with the policy's weights
	b.learning.read = b.learning.read && !b.learning.shared                          // another leader may have written the record
	if epoch != 0 {                                                                  // until now this broker could not see which applications are at work
		for name := range b.lastActive {
			b.lastActive[name] = b.started
		}
	}
	for name, s := range b.sessions {
		b.drop(name, s)
	}
}

// updateLeadership follows a change of the leadership. A stream of an earlier epoch ends with its
// node's next report.
func (b *Broker) updateLeadership() {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.leadership.State() // read under the lock, so that an older state cannot overwrite a newer one
	if !s.Leading {
		s.Epoch = 0
	}
	b.beginEpoch(s.Epoch)
}
