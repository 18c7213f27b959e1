// Package operate is the operators' side of the broker: how it is asked, what a policy
// would change before it is in force, and the view of the whole cluster.
package operate

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"penstock/wire/cluster"
)

const (
	// answerMost bounds an answer in bytes: a hundred thousand applications with their facts.
	answerMost = 256 << 20
	// wait bounds one question to one broker.
	wait = 20 * time.Second
	// again is the time between two looks at the nodes.
	again = 100 * time.Millisecond
)

// Client asks brokers: the first of its addresses that answers and leads.
type Client struct {
	addresses []string
	conns     []*grpc.ClientConn
}

// New returns a client for brokers' addresses; secure is nil for a broker on this machine
// that has no certificates. Nothing is asked yet.
func New(addresses []string, secure *tls.Config) (*Client, error) {
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = credentials.NewTLS(secure)
	}
	c := &Client{addresses: addresses}
	for _, a := range addresses {
		conn, err := grpc.NewClient(a, grpc.WithTransportCredentials(creds), grpc.WithStatsHandler(watcher{}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerMost)))
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("broker %s: %w", a, err)
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

// Close ends the connections.
func (c *Client) Close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// sentKey is of a call's context: whether the call has gone out to a broker.
type sentKey struct{}

// watcher notes that calls go out. A call that fails before did not reach a broker.
type watcher struct{}

func (watcher) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (watcher) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, out := s.(*stats.OutHeader); out {
		if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
			sent.Store(true)
		}
	}
}

func (watcher) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (watcher) HandleConn(context.Context, stats.ConnStats) {}

// ErrUnsure: a change was sent to a broker that did not say what became of it.
var ErrUnsure = errors.New("it may be written or not: look at `penstock policy history`, and try again if it is not there")

type call[Q, A any] func(cluster.OperatorsClient, context.Context, Q, ...grpc.CallOption) (A, error)

// ask puts a question to the first broker that answers and leads. The one that another
// names as the leader is asked next, if it is among the addresses.
func ask[Q, A any](ctx context.Context, c *Client, call call[Q, A], question Q) (A, error) {
	return put(ctx, c, call, question, false)
}

// change is ask for what must not be done twice. After a failure it goes on to another
// broker only if the one before has certainly done nothing. Errors: ErrUnsure.
func change[Q, A any](ctx context.Context, c *Client, call call[Q, A], question Q) (A, error) {
	return put(ctx, c, call, question, true)
}

func put[Q, A any](ctx context.Context, c *Client, call call[Q, A], question Q, once bool) (A, error) {
	var none A
	var failed []string
	refused, leader := false, "" // by who does not lead; who does
	left := slices.Clone(c.addresses)
	for len(left) > 0 {
		address := left[max(0, slices.Index(left, leader))]
		left = slices.DeleteFunc(left, func(a string) bool { return a == address })
		var sent atomic.Bool
		var trailer metadata.MD
		one, cancel := context.WithTimeout(context.WithValue(ctx, sentKey{}, &sent), wait)
		answer, err := call(cluster.NewOperatorsClient(c.conns[slices.Index(c.addresses, address)]), one, question, grpc.Trailer(&trailer))
		cancel()
		if err == nil {
			return answer, nil
		}
		s := status.Convert(err)
		named := trailer.Get(cluster.LeaderKey)
		unsure := once && sent.Load() && len(named) == 0
		switch s.Code() {
		// A store refuses before it writes anything what a broker asks of it that leads no more.
		case codes.FailedPrecondition:
			unsure = false
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		case codes.Unimplemented:
			return none, fmt.Errorf("broker %s is too old to be asked this: %s", address, s.Message())
		default:
			return none, &Error{s.Code(), s.Message()}
		}
		switch {
		case unsure:
			return none, fmt.Errorf("broker %s has not said what became of the change (%s): %w", address, s.Message(), ErrUnsure)
		case ctx.Err() != nil:
			return none, ctx.Err()
		case s.Code() == codes.Canceled:
			return none, &Error{s.Code(), s.Message()}
		}
		failed = append(failed, address+": "+short(s.Message()))
		if len(named) == 1 {
			refused = true
			leader = cmp.Or(named[0], leader)
		}
	}
	switch {
	case leader != "" && !slices.Contains(c.addresses, leader):
		return none, fmt.Errorf("%s leads, and is not among the brokers that were asked: add it to --broker or PENSTOCK_BROKER (%s)", Printable(leader), strings.Join(failed, "; "))
	case refused:
		return none, fmt.Errorf("no broker that leads answers; another one may lead soon, try again: %s", strings.Join(failed, "; "))
	}
	return none, fmt.Errorf("no broker answers: %s (--broker HOST:PORT or PENSTOCK_BROKER says where it is; one with certificates needs --ca, --cert and --key)", strings.Join(failed, "; "))
}

// wrapped is how gRPC tells of a connection that could not be made.
var wrapped = regexp.MustCompile(`^connection error: desc = "(?:transport: )?(?:[Ee]rror while dialing: )?(?:dial tcp(?: [^ ]+)?: )?(?:connect: )?(.*)"$`)

// short is gRPC's message without what only says that it was gRPC's.
func short(message string) string {
	if m := wrapped.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	return message
}

// Error is a broker's refusal.
type Error struct {
	Code codes.Code
	What string
}

func (e *Error) Error() string { return e.What }

// Policy asks for a version; 0: the newest.
func (c *Client) Policy(ctx context.Context, version uint64) (*cluster.PolicyVersion, error) {
	return ask(ctx, c, cluster.OperatorsClient.Policy, &cluster.PolicyRequest{Version: version})
}

// History asks for up to limit versions, newest first.
func (c *Client) History(ctx context.Context, limit int) ([]*cluster.PolicyVersion, error) {
	a, err := ask(ctx, c, cluster.OperatorsClient.History, &cluster.HistoryRequest{Limit: uint32(limit)})
	return a.GetVersions(), err
}

// Apply makes a text the policy.
func (c *Client) Apply(ctx context.Context, text []byte, base uint64, note string) (*cluster.PolicyVersion, error) {
	return change(ctx, c, cluster.OperatorsClient.Apply, &cluster.ApplyRequest{Text: text, Base: base, Note: note})
}

// SetWeight sets the weight of one application; 0 removes it. With force, the application need
// not be known.
func (c *Client) SetWeight(ctx context.Context, application string, weight uint32, force bool) (*cluster.PolicyVersion, error) {
	return change(ctx, c, cluster.OperatorsClient.SetWeight, &cluster.SetWeightRequest{Application: application, Weight: weight, Force: force})
}

// Nodes asks for all nodes.
func (c *Client) Nodes(ctx context.Context) (*cluster.ListNodesAnswer, error) {
	return ask(ctx, c, cluster.OperatorsClient.ListNodes, &cluster.ListNodesRequest{})
}

// Applications asks for one application, or for all that are at work.
func (c *Client) Applications(ctx context.Context, application string) ([]*cluster.ApplicationState, error) {
	a, err := ask(ctx, c, cluster.OperatorsClient.ListApplications, &cluster.ListApplicationsRequest{Application: application})
	return a.GetApplications(), err
}

// ErrNotLive: some nodes do not have a version yet.
var ErrNotLive = errors.New("not in force at all nodes")

// Await waits until all nodes that report have a version in force, at most so long, and
// says how many there are. Nodes of a broker that leads since lately may be on their way
// to it; they are waited for. Errors: ErrNotLive, with the names of some that have it not.
func (c *Client) Await(ctx context.Context, version uint64, most time.Duration) (nodes int, err error) {
	const named = 5
	deadline := time.Now().Add(most)
	for {
		a, err := c.Nodes(ctx)
		if err != nil {
			return 0, err
		}
		var without []string
		for _, n := range a.GetNodes() {
			if n.GetPolicy() < version {
				without = append(without, Printable(n.GetNode().GetName()))
			}
		}
		if len(without) == 0 && !a.GetSettling() {
			return len(a.GetNodes()), nil
		}
		if time.Now().After(deadline) {
			if len(without) == 0 {
				return len(a.GetNodes()), fmt.Errorf("version %d may be %w: the %d that report have it after %v, and the broker leads since so lately that others may not have come to it yet; `penstock node list` shows who has it",
					version, ErrNotLive, len(a.GetNodes()), most)
			}
			some := strings.Join(without[:min(named, len(without))], ", ")
			return len(a.GetNodes()), fmt.Errorf("version %d is %w after %v: %d of %d have it not: %s; the broker goes on giving it to them, and `penstock node list` shows who has it",
				version, ErrNotLive, most, len(without), len(a.GetNodes()), some)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(again):
		}
	}
}
