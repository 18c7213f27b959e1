package broker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/broker/policyfile"
	"penstock/broker/store"
	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

const defaultHistory = 20

// operators implements cluster.OperatorsServer.
type operators struct {
	cluster.UnimplementedOperatorsServer
	b *Broker
}

// Operators returns the broker's service for operators. The service checks the caller's certificate
// at each call.
func (b *Broker) Operators() cluster.OperatorsServer { return operators{b: b} }

// answerError converts an error to a gRPC status with a code that clients can act on.
func answerError(err error) error {
	code := codes.Internal
	var known interface{ GRPCStatus() *status.Status }
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, errOperator):
		code = codes.PermissionDenied
	case errors.Is(err, store.ErrConflict):
		code = codes.Aborted
	case errors.Is(err, store.ErrNotLeader):
		code = codes.FailedPrecondition
	case errors.Is(err, store.ErrUnknown), errors.Is(err, errNotSet), errors.Is(err, errUnknownApplication):
		code = codes.NotFound
	case errors.Is(err, errRequest):
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

	errUnknownApplication = errors.New("unknown application")
)

func versionMessage(v store.Version) *cluster.PolicyVersion {
	m := &cluster.PolicyVersion{Version: v.Number, Text: v.Text, Author: v.Author, Note: v.Note}
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
	if _, err := operator(ctx); err != nil {
		return nil, answerError(err)
	}
	var v store.Version
	var err error
	if r.GetVersion() > 0 {
		v, err = o.b.options.Store.Get(ctx, r.GetVersion())
	} else if v, err = o.b.options.Store.Latest(ctx); err == nil && v.Number == 0 {
		v.Text = []byte(emptyPolicy)
	}
	if err != nil {
		return nil, answerError(err)
	}
	return versionMessage(v), nil
}

// History implements cluster.OperatorsServer. It returns versions without their texts and weights.
func (o operators) History(ctx context.Context, r *cluster.HistoryRequest) (*cluster.HistoryAnswer, error) {
	if _, err := operator(ctx); err != nil {
		return nil, answerError(err)
	}
	limit := int(r.GetLimit())
	if limit == 0 {
		limit = defaultHistory
	}
	if limit > store.Keep {
		return nil, answerError(invalidRequest(fmt.Errorf("history of %d versions: use 1 to %d", limit, store.Keep)))
	}
	a := &cluster.HistoryAnswer{}
	if err := o.b.options.Store.History(ctx, limit, func(v store.Version) bool {
		v.Text, v.Weights = nil, nil
		a.Versions = append(a.Versions, versionMessage(v))
		return true
	}); err != nil {
		return nil, answerError(err)
	}
	return a, nil
}

// Apply implements cluster.OperatorsServer. A text that is already in force makes no new version.
func (o operators) Apply(ctx context.Context, r *cluster.ApplyRequest) (*cluster.PolicyVersion, error) {
	author, err := operator(ctx)
	if err != nil {
		return nil, answerError(err)
	}
	if len(r.GetNote()) > store.MaxNote || !utf8.ValidString(r.GetNote()) {
		return nil, answerError(invalidRequest(fmt.Errorf("the note is too long or not UTF-8: use at most %d bytes", store.MaxNote)))
	}
	if !utf8.Valid(r.GetText()) {
		return nil, answerError(invalidRequest(errors.New("the policy is not UTF-8")))
	}
	if _, err := policyfile.Parse(r.GetText()); err != nil {
		return nil, answerError(invalidRequest(err))
	}
	v, err := o.b.write(ctx, r.GetBase(), author, func(v *store.Version) error {
		if v.Number > 1 && bytes.Equal(v.Text, r.GetText()) {
			return errSame
		}
		v.Text, v.Note = r.GetText(), r.GetNote()
		return nil
	})
	if errors.Is(err, errSame) {
		v, err = o.b.options.Store.Latest(ctx)
	}
	if err != nil {
		return nil, answerError(err)
	}
	return versionMessage(v), nil
}

var errSame = errors.New("this policy is already in force")

// SetWeight implements cluster.OperatorsServer.
func (o operators) SetWeight(ctx context.Context, r *cluster.SetWeightRequest) (*cluster.PolicyVersion, error) {
	author, err := operator(ctx)
	if err != nil {
		return nil, answerError(err)
	}
	name, weight := r.GetApplication(), r.GetWeight()
	switch {
	case name == "" || len(name) > cluster.MaxName || !utf8.ValidString(name):
		return nil, answerError(invalidRequest(fmt.Errorf("an application's id has 1 to %d bytes", cluster.MaxName)))
	case weight > policy.MaxWeight:
		return nil, answerError(invalidRequest(fmt.Errorf("weight %d: use 1 to %d", weight, policy.MaxWeight)))
	}
	known := o.b.known(name)
	v, err := o.b.write(ctx, 0, author, func(v *store.Version) error {
		if weight == 0 {
			if _, set := v.Weights[name]; !set {
				return fmt.Errorf("%s %w", name, errNotSet)
			}
			delete(v.Weights, name)
			v.Note = "weight of " + name + " removed"
			return nil
		}
		if _, set := v.Weights[name]; !set && !known && !r.GetForce() {
			return fmt.Errorf("%w: %s is not at work at any node, and no cluster manager knows it; check the spelling, or set the weight in advance with --force", errUnknownApplication, name)
		} else if !set && len(v.Weights) >= store.MaxWeights {
			return invalidRequest(fmt.Errorf("%d applications have a weight set, the most that is possible: remove some with unset-weight, or write a rule", len(v.Weights)))
		}
		o.b.mu.Lock()
		if _, known := o.b.lastActive[name]; known { // otherwise refresh adds it
			o.b.lastActive[name] = time.Now()
		}
		o.b.mu.Unlock()
		v.Weights[name] = int(weight)
		v.Note = fmt.Sprintf("weight of %s set to %d", name, weight)
		return nil
	})
	if err != nil {
		return nil, answerError(err)
	}
	return versionMessage(v), nil
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
	if _, err := operator(ctx); err != nil {
		return nil, answerError(err)
	}
	b := o.b
	a := &cluster.ListNodesAnswer{Leader: b.options.Name, Epoch: b.leadership.State().Epoch}
	b.mu.Lock()
	// Right after this broker becomes the leader, the sessions may still belong to an earlier
	// epoch.
	a.Settling = b.epoch != a.Epoch || !b.startup.Complete(time.Since(b.created), 0)
	for _, s := range b.sessions {
		a.Settling = a.Settling || !b.startup.Complete(time.Since(b.created), s.period)
		a.Nodes = append(a.Nodes, &cluster.NodeState{Node: s.node, Policy: s.policyVersion, HeardUnixMs: b.lastReportAt(s).UnixMilli(),
			Rate: uint64(b.totals.Rate(s.apps.member)), Applications: uint32(len(s.apps.byName))})
	}
	b.mu.Unlock()
	slices.SortFunc(a.Nodes, func(x, y *cluster.NodeState) int { return cmp.Compare(x.GetNode().GetName(), y.GetNode().GetName()) })
	return a, nil
}

// ListApplications implements cluster.OperatorsServer. Applications are sorted by name. Shares
// and entitlements refer to all applications at work, even if only one is requested.
func (o operators) ListApplications(ctx context.Context, r *cluster.ListApplicationsRequest) (*cluster.ListApplicationsAnswer, error) {
	if _, err := operator(ctx); err != nil {
		return nil, answerError(err)
	}
	b := o.b
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
	return a, nil
}
