package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/broker/roles"
	"penstock/broker/store"
	"penstock/core/coord"
	"penstock/wire/cluster"
)

const defaultHistory = 20

// operators implements cluster.OperatorsServer.
type operators struct {
	cluster.UnimplementedOperatorsServer
	b *Broker
}

// Operators returns the broker's service for operators. The service checks the caller's role at each call.
func (b *Broker) Operators() cluster.OperatorsServer { return operators{b: b} }

// answerError converts an error to a gRPC status with a code that clients can act on.
func answerError(err error) error {
	code := codes.Internal
	var known interface{ GRPCStatus() *status.Status }
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, errOperator), errors.Is(err, errRole), errors.Is(err, errIdentity):
		code = codes.PermissionDenied
	case errors.Is(err, store.ErrConflict):
		code = codes.Aborted
	case errors.Is(err, store.ErrNotLeader):
		code = codes.FailedPrecondition
	case errors.Is(err, store.ErrUnknown), errors.Is(err, errNotSet), errors.Is(err, errUnknownApplication), errors.Is(err, errNoCanary):
		code = codes.NotFound
	case errors.Is(err, errRequest), errors.Is(err, ErrCanary):
		code = codes.InvalidArgument
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, err.Error())
}

// invalidRequest marks an error as a mistake in the request.
func invalidRequest(err error) error { return requestError{err} }

type requestError struct{ error }

func (requestError) Is(target error) bool { return target == errRequest }

var (
	errRequest = errors.New("invalid request")
	errNotSet  = errors.New("has no weight set")

	errNoCanary = errors.New("no canary is in force")

	errUnknownApplication = errors.New("unknown application")
)

func versionMessage(v store.Version) *cluster.PolicyVersion {
	m := &cluster.PolicyVersion{Version: v.Number, Text: v.Text, Author: v.Author, Note: v.Note, Off: v.Off,
		CanaryPercent: uint32(v.Canary.Percent), CanaryText: v.Canary.Text}
	if !v.Time.IsZero() {
		m.UnixMs = v.Time.UnixMilli()
	}
	for name, weight := range v.Weights {
		if m.Weights == nil {
			m.Weights = map[string]uint32{}
		}
		m.Weights[name] = uint32(weight)
	}
	return m
}

// Policy implements cluster.OperatorsServer.
func (o operators) Policy(ctx context.Context, r *cluster.PolicyRequest) (*cluster.PolicyVersion, error) {
	return guarded(ctx, o.b, call{name: "Policy", needs: roles.Viewer}, func(caller) (*cluster.PolicyVersion, error) {
		var v store.Version
		var err error
		if r.GetVersion() > 0 {
			v, err = o.b.options.Store.Get(ctx, r.GetVersion())
		} else if v, err = o.b.options.Store.Latest(ctx); err == nil && v.Number == 0 {
			v.Text = []byte(emptyPolicy)
		}
		return versionMessage(v), err
	})
}

// History implements cluster.OperatorsServer. It returns versions without their texts and weights.
func (o operators) History(ctx context.Context, r *cluster.HistoryRequest) (*cluster.HistoryAnswer, error) {
	return guarded(ctx, o.b, call{name: "History", needs: roles.Viewer}, func(caller) (*cluster.HistoryAnswer, error) {
		limit := int(r.GetLimit())
		if limit == 0 {
			limit = defaultHistory
		}
		if limit > store.Keep {
			return nil, invalidRequest(fmt.Errorf("history of %d versions: use 1 to %d", limit, store.Keep))
		}
		a := &cluster.HistoryAnswer{}
		return a, o.b.options.Store.History(ctx, limit, func(v store.Version) bool {
			v.Text, v.Weights, v.Canary.Text = nil, nil, nil
			a.Versions = append(a.Versions, versionMessage(v))
			return true
		})
	})
}

// known reports whether an application is at work at some node, or known to a cluster manager.
func (b *Broker) known(name string) bool {
	b.mu.Lock()
	_, atWork := b.totals.Of(name)
	b.mu.Unlock()
	if atWork || b.options.State(name) != "" {
		return true
	}
	f := b.options.Facts(name)
	return f.Queue != "" || f.User != "" || f.Name != "" || f.Type != "" || len(f.Tags) > 0
}

// ListNodes implements cluster.OperatorsServer. Nodes are sorted by name.
func (o operators) ListNodes(ctx context.Context, _ *cluster.ListNodesRequest) (*cluster.ListNodesAnswer, error) {
	return guarded(ctx, o.b, call{name: "ListNodes", needs: roles.Viewer}, func(caller) (*cluster.ListNodesAnswer, error) {
		return o.b.listNodes(), nil
	})
}

func (b *Broker) listNodes() *cluster.ListNodesAnswer {
	a := &cluster.ListNodesAnswer{Leader: b.options.Name, Epoch: b.leadership.State().Epoch}
	b.mu.Lock()
	// Right after this broker becomes the leader, the sessions may still belong to an earlier
	// epoch.
	a.Settling = b.epoch != a.Epoch || !b.startup.Complete(time.Since(b.created), 0)
	a.CanaryPercent, a.Off = uint32(b.current.Canary.Percent), b.current.Off
	for _, s := range b.sessions {
		a.Settling = a.Settling || !b.startup.Complete(time.Since(b.created), s.period)
		a.Nodes = append(a.Nodes, &cluster.NodeState{Node: s.node, Policy: s.policyVersion, HeardUnixMs: b.lastReportAt(s).UnixMilli(),
			Rate: uint64(b.totals.Rate(s.apps.member)), Applications: uint32(len(s.apps.byName)),
			Mode: s.mode, Canary: b.canary.includes(s)})
	}
	b.mu.Unlock()
	slices.SortFunc(a.Nodes, func(x, y *cluster.NodeState) int { return cmp.Compare(x.GetNode().GetName(), y.GetNode().GetName()) })
	return a
}

// ListApplications implements cluster.OperatorsServer. Applications are sorted by name. Shares
// and entitlements refer to all applications at work, even if only one is requested.
func (o operators) ListApplications(ctx context.Context, r *cluster.ListApplicationsRequest) (*cluster.ListApplicationsAnswer, error) {
	return guarded(ctx, o.b, call{name: "ListApplications", needs: roles.Viewer}, func(caller) (*cluster.ListApplicationsAnswer, error) {
		return o.b.listApplications(r), nil
	})
}

func (b *Broker) listApplications(r *cluster.ListApplicationsRequest) *cluster.ListApplicationsAnswer {
	a := &cluster.ListApplicationsAnswer{}
	rates, weights := 0.0, 0.0
	b.mu.Lock()
	b.totals.Each(func(_ coord.App, name string, nodes int, total coord.Service) {
		right := b.rights[name]
		rates += float64(total.Rate)
		weights += right.weight
		if r.GetApplication() != "" && name != r.GetApplication() {
			return
		}
		s := &cluster.ApplicationState{Application: name, Nodes: uint32(nodes), Rate: uint64(total.Rate),
			Weight: right.weight, Limit: uint64(right.limit), Rule: -1, Bytes: uint64(total.Bytes), Hungry: uint32(total.Hungry),
			TotalReserve: uint64(right.total.Reserve), TotalLimit: uint64(right.total.Limit)}
		if t := b.totalRates[name]; t != nil && t.Total.Reserve > 0 {
			s.Promise = promise(t)
		}
		b.describeForecast(name, s)
		b.describeDeadline(name, s)
		b.describeSlowdown(name, s)
		if p, ordered := b.orders.places[name]; ordered {
			s.Rank, s.Slice, s.RemainingBytes, s.RemainingError = uint32(p.Rank), p.Part, uint64(p.Remaining.Bytes), p.Remaining.Error
		}
		if g, known := b.grants[name]; known {
			s.Rule, s.Group = int32(g.Rule), g.Group
		}
		a.Applications = append(a.Applications, s)
	})
	b.mu.Unlock()
	for _, s := range a.Applications {
		f := b.options.Facts(s.Application)
		s.Queue, s.User, s.Name, s.Type, s.Tags, s.Bandwidth = f.Queue, f.User, f.Name, f.Type, f.Tags, f.Bandwidth
		s.State, s.SubmittedUnixMs = b.options.State(s.Application), b.options.Life(s.Application).Submitted
		if rates > 0 {
			s.Share = float64(s.Rate) / rates
		}
		if weights > 0 {
			s.Due = s.Weight / weights
		}
	}
	slices.SortFunc(a.Applications, func(x, y *cluster.ApplicationState) int { return cmp.Compare(x.Application, y.Application) })
	return a
}
