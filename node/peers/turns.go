package peers

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/node/device"
	"penstock/node/identity"
	"penstock/node/turns"
	"penstock/wire/cluster"
)

// This file gives turns at this machine's storage server to tasks on other nodes. A node speaks for its
// tasks: it has verified which application each belongs to, as in its reports to the broker. A node with
// a certificate of the cluster can therefore name any application. What it can use is bounded.

const (
	// beatEvery is the time between two heartbeats of a stream of turns.
	beatEvery = 250 * time.Millisecond
	// maxTurnStreams is the maximum number of streams of turns of one node. A node that has lost its
	// connection opens another stream.
	maxTurnStreams = 4
	// Messages about turns of one stream, per second and in a burst. A node that sends more waits.
	turnsPerSecond = 10_000
	turnsBurst     = 10_000
	// maxAnswers is the maximum number of answers that wait because the caller does not read.
	maxAnswers = 2 * turns.MaxTurnsOfNode
)

// turnStreams counts the streams of turns by the caller's name.
type turnStreams struct {
	mu   sync.Mutex
	open map[string]int
}

func (t *turnStreams) enter(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[name] >= maxTurnStreams {
		return false
	}
	if t.open == nil {
		t.open = map[string]int{}
	}
	t.open[name]++
	return true
}

func (t *turnStreams) leave(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[name]--; t.open[name] <= 0 {
		delete(t.open, name)
	}
}

// Turns implements cluster.PeersServer.
func (s *Server) Turns(stream grpc.BidiStreamingServer[cluster.TurnRequest, cluster.TurnAnswer]) error {
	name, _, err := caller(stream.Context())
	if err != nil {
		return err
	}
	if s.Target == nil {
		return status.Error(codes.Unimplemented, "no storage server on this machine: its settings have no storage.directory")
	}
	target, err := s.Target()
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if !s.turnStreams.enter(name) {
		return status.Errorf(codes.ResourceExhausted, "%d streams of turns of %.64q are open", maxTurnStreams, name)
	}
	defer s.turnStreams.leave(name)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	a := &answers{news: make(chan struct{}, 1), broken: cancel}
	received := make(chan error, 1)
	go func() {
		received <- s.receiveTurns(ctx, stream, turns.NewDesk(a, turns.MaxTurnsOfNode), target, a)
	}()
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-received:
			if err != nil {
				s.log.Debug("a stream of turns has ended", "node", name, slog.Any("error", err))
			}
			return err
		case <-ctx.Done():
			return status.Error(codes.ResourceExhausted, "the caller does not read its messages")
		case <-a.news:
			for _, answer := range a.take() {
				if err := stream.Send(answer); err != nil {
					return err
				}
			}
		case <-ticker.C:
			if _, _, err := caller(stream.Context()); err != nil { // its certificate has expired
				return err
			}
			if now, err := s.Target(); err != nil || now.Loop != target.Loop {
				return status.Error(codes.Unavailable, "the storage server has another disk by now, or none")
			}
			if !target.Loop.Alive() {
				continue
			}
			if err := stream.Send(&cluster.TurnAnswer{}); err != nil {
				return err
			}
		}
	}
}

// receiveTurns receives a node's requests until its stream ends. Then it ends the node's turns.
func (s *Server) receiveTurns(ctx context.Context, stream grpc.BidiStreamingServer[cluster.TurnRequest, cluster.TurnAnswer],
	desk *turns.Desk, target turns.Target, a *answers) error {
	open := map[uint32]*turns.Turn{}
	defer func() {
		for _, t := range open {
			t.Close(-1)
		}
	}()
	pace := rate.NewLimiter(turnsPerSecond, turnsBurst)
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil // the caller has ended the stream, or is gone
		}
		if err := pace.Wait(ctx); err != nil {
			return nil
		}
		id := m.GetId()
		if m.GetEnd() {
			if t := open[id]; t != nil {
				delete(open, id)
				t.Close(-1)
			}
			continue
		}
		if id == 0 || open[id] != nil {
			return status.Errorf(codes.InvalidArgument, "turn %d: use a number above 0 that no other turn has", id)
		}
		if len(open) >= turns.MaxTurnsOfNode { // the desk no longer counts those whose time at the device is over
			a.put(&cluster.TurnAnswer{Id: id, Refused: true})
			continue
		}
		t, err := desk.Take(target, turns.Request{ID: id, Flow: flowOfTask(m.GetApplication()), Write: m.GetWrite(), Bytes: m.GetBytes()})
		if err != nil {
			a.put(&cluster.TurnAnswer{Id: id, Refused: true})
			continue
		}
		open[id] = t
	}
}

// flowOfTask returns the flow of a task on another node.
func flowOfTask(application string) string {
	if !identity.IsApplication(application) {
		return device.UnattributedFlow
	}
	return application
}

// answers are the answers of a stream that have not been sent. It implements device.Marker.
type answers struct {
	news   chan struct{} // holds one element while there may be answers
	broken func()

	mu  sync.Mutex
	all []*cluster.TurnAnswer
}

// Mark implements device.Marker: a turn is granted.
func (a *answers) Mark(id uint32, _ int64) { a.put(&cluster.TurnAnswer{Id: id}) }

func (a *answers) put(answer *cluster.TurnAnswer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) >= maxAnswers {
		a.broken()
		return
	}
	a.all = append(a.all, answer)
	select {
	case a.news <- struct{}{}:
	default:
	}
}

func (a *answers) take() []*cluster.TurnAnswer {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}
