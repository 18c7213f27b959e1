package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/core/coord"
	"penstock/wire/cluster"
)

// Exchange implements cluster.NodesServer: one node's stream, from its first report to its
// end. Each report is answered at once, with what the others have said by then.
func (b *Broker) Exchange(stream cluster.Nodes_ExchangeServer) error {
	report, err := firstReport(stream)
	if err != nil {
		b.connections.noteRefusal(b.connections.connOf(stream.Context()))
		return err
	}
	epoch, trailer, err := b.requireLeader()
	if err != nil {
		stream.SetTrailer(trailer)
		return err
	}
	name, period := report.GetNode().GetName(), time.Duration(report.GetNode().GetPeriodMs())*time.Millisecond
	// over is why a stream of the epoch ends though its node did nothing wrong; nil if it does not.
	over := func() error {
		trailer, err := b.requireEpoch(epoch)
		if err != nil {
			stream.SetTrailer(trailer)
		}
		return err
	}
	if err := checkIntroduction(stream.Context(), report); err != nil {
		return b.refuse(stream.Context(), name, err)
	}
	wait, err := b.reportLimits.begin(name, period, time.Now())
	if err != nil {
		return b.refuse(stream.Context(), name, err)
	}
	if err := b.throttle(stream.Context(), wait); err != nil {
		return err
	}
	s, err := b.join(stream, report, epoch)
	if errors.Is(err, errReplaced) {
		if err := over(); err != nil {
			return err
		}
	}
	if err != nil {
		return b.refuse(stream.Context(), name, err)
	}
	defer b.leave(s)
	b.logNode("a node", s)
	for {
		began := time.Now()
		answer, err := b.handleReport(s, report)
		if errors.Is(err, errReplaced) {
			if err := over(); err != nil { // that is why
				return err
			}
		}
		if err != nil {
			return b.refuse(stream.Context(), name, err)
		}
		// The last thing before it goes out: this process may have been stopped since.
		if err := over(); err != nil {
			return err
		}
		answer.Epoch = epoch
		b.metrics.reports.Inc()
		b.metrics.reportSeconds.Observe(time.Since(began).Seconds())
		if err := stream.Send(answer); err != nil {
			return err
		}
		if report, err = stream.Recv(); err != nil {
			return err
		}
		b.noteReport(s)
		if err := b.throttle(stream.Context(), b.reportLimits.wait(name, period, time.Now())); err != nil {
			return err
		}
	}
}

// slow waits with a report of a node that reports more often than it may.
func (b *Broker) throttle(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	b.metrics.throttled.Inc()
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// comes says that a node comes or goes; when many do, more of them only to who looks closely.
func (b *Broker) logNode(what string, s *session) {
	level := slog.LevelInfo
	left, say := b.nodeLog.allow(time.Now())
	if !say {
		level = slog.LevelDebug
	}
	b.log.Log(context.Background(), level, what, "node", s.node.GetName(), "version", s.node.GetVersion(), "unsaid", left)
}

// first is the stream's first report.
func firstReport(stream cluster.Nodes_ExchangeServer) (*cluster.Report, error) {
	type received struct {
		report *cluster.Report
		err    error
	}
	got := make(chan received, 1)
	go func() { // ends with the stream, if not before
		r, err := stream.Recv()
		got <- received{r, err}
	}()
	select {
	case r := <-got:
		return r.report, r.err
	case <-time.After(introductionTimeout):
		return nil, status.Errorf(codes.DeadlineExceeded, "no report within %v", introductionTimeout)
	}
}

// refuse ends a stream for what the node did.
func (b *Broker) refuse(ctx context.Context, node string, err error) error {
	code, reason := codes.InvalidArgument, "report"
	switch {
	case errors.Is(err, errReplaced):
		code, reason = codes.Aborted, "replaced"
	case errors.Is(err, errIdentity):
		code, reason = codes.PermissionDenied, "identity"
	case errors.Is(err, coord.ErrTooManyMembers):
		code, reason = codes.ResourceExhausted, "nodes"
	case errors.Is(err, coord.ErrTooManyApps):
		code, reason = codes.ResourceExhausted, "applications"
	case errors.Is(err, coord.ErrRate):
		reason = "rate"
	case errors.Is(err, errReportRate):
		code, reason = codes.ResourceExhausted, "pace"
	}
	b.metrics.streamsRefused.WithLabelValues(reason).Inc()
	if left, say := b.peerLog.allow(time.Now()); say {
		b.log.Warn("a node's stream is refused", "node", node[:min(len(node), cluster.MaxName)], "error", err, "unsaid", left)
	}
	b.connections.noteRefusal(b.connections.connOf(ctx))
	return status.Error(code, err.Error())
}

var (
	errReplaced = errors.New("another stream of this node has taken this one's place, or it was silent for too long")
	errIdentity = errors.New("the certificate is another node's")
)

// introduced checks who begins a stream.
func checkIntroduction(ctx context.Context, first *cluster.Report) error {
	node := first.GetNode()
	switch {
	case node == nil || node.GetName() == "":
		return errors.New("the first report of a stream says which node it is")
	case len(node.GetName()) > cluster.MaxName || !utf8.ValidString(node.GetName()):
		return fmt.Errorf("a node's name has at most %d bytes", cluster.MaxName)
	case len(node.GetVersion()) > cluster.MaxName:
		return fmt.Errorf("a node's version has at most %d bytes", cluster.MaxName)
	case first.GetSequence() != 1:
		return fmt.Errorf("the first report of a stream has number %d, not 1: it is none of this stream's", first.GetSequence())
	}
	return checkPeer(ctx, node.GetName())
}

// join begins the session of a node that is introduced. A node that is there already has a new stream: the old one, whose
// end may not have been seen yet, counts no more.
func (b *Broker) join(stream cluster.Nodes_ExchangeServer, first *cluster.Report, epoch uint64) (*session, error) {
	node := first.GetNode()
	lives, err := locationOf(stream.Context(), node)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch < b.epoch {
		return nil, errReplaced // by a leadership that has begun meanwhile
	}
	b.beginEpoch(epoch)
	if old := b.sessions[node.GetName()]; old != nil {
		b.drop(node.GetName(), old)
	}
	apps, err := newEntryTable(b.totals)
	if err != nil {
		return nil, err
	}
	queues, err := newEntryTable(b.queues)
	if err != nil { // there is room, as for the other
		return nil, errors.Join(err, b.totals.Leave(apps.member))
	}
	period := min(max(time.Duration(node.GetPeriodMs())*time.Millisecond, minPeriod), maxPeriod)
	s := &session{node: node, apps: apps, queues: queues, location: lives, period: period, maxSilence: silentPeriods * period,
		conn: b.connections.connOf(stream.Context())}
	b.noteReport(s)
	b.connections.hold(s.conn)
	b.sessions[node.GetName()] = s
	b.startup.Join(node.GetName(), time.Since(b.created), period)
	b.addAddresses(s)
	return s, nil
}

// leave ends a session with its stream.
func (b *Broker) leave(s *session) {
	b.mu.Lock()
	counted := b.sessions[s.node.GetName()] == s
	if counted {
		b.drop(s.node.GetName(), s)
	}
	b.mu.Unlock()
	if counted {
		b.logNode("a node is gone", s)
	}
}

// drop takes a session out of the totals. b.mu is held.
func (b *Broker) drop(name string, s *session) {
	if err := errors.Join(b.totals.Leave(s.apps.member), b.queues.Leave(s.queues.member)); err != nil {
		go b.log.Error("a node that is counted is not in the totals", "node", name, "error", err) // nobody waits for the log
	}
	delete(b.sessions, name)
	b.removeAddresses(s)
	b.connections.release(s.conn) // if its peer does not hear that it counts no more, it is closed soon
}

// take books a report and answers it.
func (b *Broker) handleReport(s *session, r *cluster.Report) (*cluster.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[s.node.GetName()] != s {
		return nil, errReplaced
	}
	if r.GetSequence() != s.sequence+1 {
		return nil, fmt.Errorf("report %d after %d: one is missing, or sent twice", r.GetSequence(), s.sequence)
	}
	var news []string
	q := r.GetQueues()
	if len(r.GetNames()) > 2*cluster.MaxEntries || len(q.GetNames()) > 2*cluster.MaxQueues {
		return nil, fmt.Errorf("%d names of applications and %d of queues: at most %d and %d", len(r.GetNames()), len(q.GetNames()), 2*cluster.MaxEntries, 2*cluster.MaxQueues)
	}
	for _, n := range r.GetNames() {
		if len(n.GetApplication()) > cluster.MaxName {
			return nil, fmt.Errorf("entry %d: an application's name has at most %d bytes", n.GetEntry(), cluster.MaxName)
		}
		if err := s.apps.name(int(n.GetEntry()), n.GetApplication()); err != nil {
			return nil, fmt.Errorf("entry %d: %w", n.GetEntry(), err)
		}
		if _, known := b.rights[n.GetApplication()]; !known && n.GetApplication() != "" {
			news = append(news, n.GetApplication())
		}
	}
	for _, n := range q.GetNames() {
		if len(n.GetQueue()) > cluster.MaxQueue {
			return nil, fmt.Errorf("queue %d: a queue's name has at most %d bytes", n.GetEntry(), cluster.MaxQueue)
		}
		if err := s.queues.name(int(n.GetEntry()), n.GetQueue()); err != nil {
			return nil, fmt.Errorf("queue %d: %w", n.GetEntry(), err)
		}
	}
	if err := s.apps.report(entryColumns{entries: r.GetEntries(), rates: r.GetRates(), rooms: r.GetRooms()}, false, cluster.MaxEntries); err != nil {
		return nil, err
	}
	if err := s.queues.report(entryColumns{q.GetEntries(), q.GetRates(), q.GetRooms(), q.GetHad(), q.GetWeights()}, true, cluster.MaxQueues); err != nil {
		return nil, fmt.Errorf("queues: %w", err)
	}
	s.sequence, s.policyVersion = r.GetSequence(), r.GetPolicy()
	if len(news) > 0 && (b.totals.Apps() <= maxImmediateApps || time.Since(b.rightsAt) > 20*b.rightsTime) {
		// It is told at once what it is due; else with the next round.
		news = slices.DeleteFunc(news, func(name string) bool { return !b.needsGrant(name) })
		if len(news) > 0 {
			b.mu.Unlock()
			b.matchRules(news[:min(len(news), matchBatch)])
			b.mu.Lock()
			if b.sessions[s.node.GetName()] != s {
				return nil, errReplaced
			}
		}
		b.computeRights()
	}
	return b.answer(s), nil
}

// answer has what the node does not know yet, until the session's next one. b.mu is held.
func (b *Broker) answer(s *session) *cluster.Answer {
	a, q := &s.answer, &s.queueTotals
	a.Sequence, a.Policy, a.Settling = s.sequence, b.version, !b.startup.Complete(time.Since(b.created), s.period)
	f := s.apps.changes(entryColumns{entries: a.Entries, rates: a.Rates, rooms: a.Rooms}, false)
	a.Entries, a.Rates, a.Rooms = f.entries, f.rates, f.rooms
	f = s.queues.changes(entryColumns{q.Entries, q.Rates, q.Rooms, q.Had, q.Weights}, true)
	q.Entries, q.Rates, q.Rooms, q.Had, q.Weights = f.entries, f.rates, f.rooms, f.had, f.weights
	a.Queues = nil
	if len(q.Entries) > 0 {
		a.Queues = q
	}
	a.Rights = a.Rights[:0]
	for i := range s.apps.sent {
		at := &s.apps.sent[i]
		r, known := b.rights[at.name]
		if !known || at.name == "" {
			continue
		}
		if s.node.GetLevels() {
			r.weight = 0 // it is another one whenever somebody comes or goes
		}
		if !r.same(at.right) {
			a.Rights = append(a.Rights, &cluster.Right{Entry: uint32(i), Weight: r.weight, Limit: uint64(r.limit),
				Queues: r.path.wireLevels(), Own: float64(r.ownWeight)})
			at.right = r
		}
	}
	return a
}
