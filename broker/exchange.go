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
	"penstock/core/policy"
	"penstock/wire/cluster"
)

// Exchange implements cluster.NodesServer. It serves the stream of one node until its end, and
// answers each report at once with the totals as of that moment.
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
	// epochEnded returns an error if this broker no longer leads in the stream's epoch.
	epochEnded := func() error {
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
		if err := epochEnded(); err != nil {
			return err
		}
	}
	if err != nil {
		return b.refuse(stream.Context(), name, err)
	}
	defer b.leave(s)
	b.logNode("node connected", s)
	for {
		began := time.Now()
		if err := checkPeer(stream.Context(), name); err != nil { // it may have expired
			return b.refuse(stream.Context(), name, err)
		}
		answer, err := b.handleReport(s, report)
		if errors.Is(err, errReplaced) {
			if err := epochEnded(); err != nil {
				return err
			}
		}
		if err != nil {
			return b.refuse(stream.Context(), name, err)
		}
		// The epoch is checked last, since the process may have been suspended while it handled the
		// report.
		if err := epochEnded(); err != nil {
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

// throttle delays a report of a node that exceeds its report rate.
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

// logNode logs that a node has connected or disconnected. Beyond logLinesPerSecond, lines are
// logged at debug level.
func (b *Broker) logNode(what string, s *session) {
	level := slog.LevelInfo
	left, say := b.nodeLog.allow(time.Now())
	if !say {
		level = slog.LevelDebug
	}
	b.log.Log(context.Background(), level, what, "node", s.node.GetName(), "version", s.node.GetVersion(), "suppressed", left)
}

// firstReport receives the first report of a stream.
func firstReport(stream cluster.Nodes_ExchangeServer) (*cluster.Report, error) {
	type received struct {
		report *cluster.Report
		err    error
	}
	got := make(chan received, 1)
	go func() { // ends with the stream at the latest
		r, err := stream.Recv()
		got <- received{r, err}
	}()
	select {
	case r := <-got:
		return r.report, r.err
	case <-time.After(introductionTimeout):
		return nil, status.Errorf(codes.DeadlineExceeded, "no report within %v of the stream's beginning", introductionTimeout)
	}
}

// refuse ends a stream because of an error that the node made.
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
		b.log.Warn("stream refused", "node", node[:min(len(node), cluster.MaxName)], "error", err, "suppressed", left)
	}
	b.connections.noteRefusal(b.connections.connOf(ctx))
	return status.Error(code, err.Error())
}

var (
	errReplaced = errors.New("this stream was replaced by a newer one of the same node, or dropped after a long silence; open a new stream")
	errIdentity = errors.New("the certificate does not belong to this node")
)

// checkIntroduction checks the node's description in the first report of a stream.
func checkIntroduction(ctx context.Context, first *cluster.Report) error {
	node := first.GetNode()
	switch {
	case node == nil || node.GetName() == "":
		return errors.New("the first report of a stream must name the node")
	case len(node.GetName()) > cluster.MaxName || !utf8.ValidString(node.GetName()):
		return fmt.Errorf("a node's name has at most %d bytes", cluster.MaxName)
	case len(node.GetVersion()) > cluster.MaxName:
		return fmt.Errorf("a node's version has at most %d bytes", cluster.MaxName)
	case first.GetSequence() != 1:
		return fmt.Errorf("the first report of a stream has sequence number %d, not 1", first.GetSequence())
	}
	return checkPeer(ctx, node.GetName())
}

// join begins the session of a node. An older session of the same node ends, because its stream may
// have broken unnoticed.
func (b *Broker) join(stream cluster.Nodes_ExchangeServer, first *cluster.Report, epoch uint64) (*session, error) {
	node := first.GetNode()
	lives, err := locationOf(stream.Context(), node)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch < b.epoch {
		return nil, errReplaced // a newer epoch has begun
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
	if err != nil { // not expected: both tables have room for the same number of nodes
		return nil, errors.Join(err, b.totals.Leave(apps.member))
	}
	period := min(max(time.Duration(node.GetPeriodMs())*time.Millisecond, minPeriod), maxPeriod)
	s := &session{node: node, apps: apps, queues: queues, location: lives, place: placeOf(node.GetName()), period: period, maxSilence: silentPeriods * period, parts: map[string]*coord.RatePart{},
		conn: b.connections.connOf(stream.Context())}
	b.noteReport(s)
	b.connections.hold(s.conn)
	b.sessions[node.GetName()] = s
	b.startup.Join(node.GetName(), time.Since(b.created), period)
	b.addAddresses(s)
	return s, nil
}

// leave ends the session of a stream that ends.
func (b *Broker) leave(s *session) {
	b.mu.Lock()
	counted := b.sessions[s.node.GetName()] == s
	if counted {
		b.drop(s.node.GetName(), s)
	}
	b.mu.Unlock()
	if counted {
		b.logNode("node disconnected", s)
	}
}

// drop removes a session from the totals. b.mu is held.
func (b *Broker) drop(name string, s *session) {
	if err := errors.Join(b.totals.Leave(s.apps.member), b.queues.Leave(s.queues.member)); err != nil {
		go b.log.Error("remove a node from the totals", "node", name, "error", err) // outside of the lock: logging may block
	}
	delete(b.sessions, name)
	b.removeAddresses(s)
	b.connections.release(s.conn) // an idle connection is closed soon
}

// handleReport enters a report into the totals and returns the answer.
func (b *Broker) handleReport(s *session, r *cluster.Report) (*cluster.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[s.node.GetName()] != s {
		return nil, errReplaced
	}
	if r.GetSequence() != s.sequence+1 {
		return nil, fmt.Errorf("report %d follows report %d: a report is missing, or was sent twice", r.GetSequence(), s.sequence)
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
	if err := s.apps.report(entryColumns{entries: r.GetEntries(), rates: r.GetRates(), rooms: r.GetRooms(), bytes: r.GetBytes(), hungry: r.GetHungry(),
		streams: r.GetStreams(), waiting: r.GetWaiting(), hindered: r.GetHindered(), used: r.GetUsed(), touched: r.GetTouched()}, false, cluster.MaxEntries); err != nil {
		return nil, err
	}
	if err := s.queues.report(entryColumns{entries: q.GetEntries(), rates: q.GetRates(), rooms: q.GetRooms(), had: q.GetHad(), weights: q.GetWeights()}, true, cluster.MaxQueues); err != nil {
		return nil, fmt.Errorf("queues: %w", err)
	}
	s.sequence, s.policyVersion, s.mode, s.capacity = r.GetSequence(), r.GetPolicy(), knownMode(r.GetMode()), int64(min(r.GetCapacity(), coord.MaxBytesRate))
	if len(news) > 0 && (b.totals.Apps() <= maxImmediateApps && b.rightsTime <= maxImmediateTime || time.Since(b.rightsAt) > 20*b.rightsTime) {
		// The answer includes the rights of new applications if that is cheap enough.
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

// answer returns the totals and rights that have changed since they were last sent to the node. The
// returned value is valid until the session's next answer. b.mu is held.
func (b *Broker) answer(s *session) *cluster.Answer {
	a, q := &s.answer, &s.queueTotals
	a.Sequence, a.Policy, a.Settling = s.sequence, b.version, !b.startup.Complete(time.Since(b.created), s.period)
	f := s.apps.changes(entryColumns{entries: a.Entries, rates: a.Rates, rooms: a.Rooms}, false)
	a.Entries, a.Rates, a.Rooms = f.entries, f.rates, f.rooms
	f = s.queues.changes(entryColumns{entries: q.Entries, rates: q.Rates, rooms: q.Rooms, had: q.Had, weights: q.Weights}, true)
	q.Entries, q.Rates, q.Rooms, q.Had, q.Weights = f.entries, f.rates, f.rooms, f.had, f.weights
	a.Queues = nil
	if len(q.Entries) > 0 {
		a.Queues = q
	}
	rights := b.rights
	if a.Mode, a.Canary = modeOf(b.policy, b.current.Off), b.canary.includes(s); a.Canary {
		rights, a.Mode = b.canary.rights, modeOf(b.canary.policy, b.current.Off)
	}
	a.Rights = a.Rights[:0]
	for i := range s.apps.sent {
		at := &s.apps.sent[i]
		r, known := rights[at.name]
		if !known || at.name == "" {
			continue
		}
		if s.node.GetLevels() {
			r.weight = 0 // not needed by the node, and it changes whenever any application comes or goes
		}
		if r.total != (policy.Total{}) {
			r.total = b.takePart(s, i, at.name)
		}
		if !r.same(at.right) {
			a.Rights = append(a.Rights, &cluster.Right{Entry: uint32(i), Weight: r.weight, Limit: uint64(r.limit), Reserve: uint64(r.reserve.Bytes), ReservePart: r.reserve.Part, ReserveStrict: r.reserve.Strict,
				TotalReserve: uint64(r.total.Reserve), TotalLimit: uint64(r.total.Limit), LatencyMs: uint32(r.latency.Milliseconds()), Order: uint32(r.order), Queues: r.path.wireLevels(), Own: float64(r.ownWeight)})
			at.right = r
		}
	}
	return a
}
