// Package operate is the operators' client of the broker. It makes requests, shows what a policy
// would change before it is in force, and draws the view of the whole cluster.
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
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"penstock/settings/plain"
	"penstock/wire/cluster"
)

const (
	// maxAnswer is the maximum size of an answer in bytes. It is enough for a hundred thousand
	// applications with their facts.
	maxAnswer = 256 << 20
	// requestTimeout bounds one request to one broker.
	requestTimeout = 20 * time.Second
	// pollInterval is the time between two requests for the nodes' state.
	pollInterval = 100 * time.Millisecond
)

// Client sends requests to the first of several brokers that answers and leads.
type Client struct {
	addresses []string
	conns     []*grpc.ClientConn
}

// New returns a client of brokers at these addresses. secure returns the configuration of each connection; it is nil for a
// broker on this machine that has no certificates. New does not connect.
func New(addresses []string, secure func() *tls.Config) (*Client, error) {
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = cluster.Credentials(secure, "")
	}
	c := &Client{addresses: addresses}
	for _, a := range addresses {
		conn, err := grpc.NewClient(a, grpc.WithTransportCredentials(creds), grpc.WithStatsHandler(sentHandler{}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("broker %s: %w", a, err)
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

// Close closes the connections.
func (c *Client) Close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// sentKey is the context key of an atomic.Bool that is set once a call was sent.
type sentKey struct{}

// sentHandler notes when calls are sent. A call that fails before it is sent has not reached a
// broker.
type sentHandler struct{}

func (sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sentHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, out := s.(*stats.OutHeader); out {
		if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
			sent.Store(true)
		}
	}
}

func (sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (sentHandler) HandleConn(context.Context, stats.ConnStats) {}

// ErrUnsure means that the outcome of a change is not known.
var ErrUnsure = errors.New("the change may or may not have been made: check `penstock policy history`, and try again if it is missing")

type call[Q, A any] func(cluster.OperatorsClient, context.Context, Q, ...grpc.CallOption) (A, error)

// ask sends a request to the first broker that answers and leads. If a broker names the leader and
// the leader is among the addresses, the leader is tried next.
func ask[Q, A any](ctx context.Context, c *Client, call call[Q, A], question Q) (A, error) {
	return send(ctx, c, call, question, false)
}

// change sends a request that must not be repeated. After a failure, it tries another broker only if
// the request certainly had no effect. Errors: ErrUnsure.
func change[Q, A any](ctx context.Context, c *Client, call call[Q, A], question Q) (A, error) {
	return send(ctx, c, call, question, true)
}

func send[Q, A any](ctx context.Context, c *Client, call call[Q, A], question Q, once bool) (A, error) {
	var none A
	var failed []string
	refused, leader := false, "" // refused: some broker refused because it does not lead
	left := slices.Clone(c.addresses)
	for len(left) > 0 {
		address := left[max(0, slices.Index(left, leader))]
		left = slices.DeleteFunc(left, func(a string) bool { return a == address })
		var sent atomic.Bool
		var trailer metadata.MD
		one, cancel := context.WithTimeout(context.WithValue(ctx, sentKey{}, &sent), requestTimeout)
		answer, err := call(cluster.NewOperatorsClient(c.conns[slices.Index(c.addresses, address)]), one, question, grpc.Trailer(&trailer))
		cancel()
		if err == nil {
			return answer, nil
		}
		s := status.Convert(err)
		named := trailer.Get(cluster.LeaderKey)
		unsure := once && sent.Load() && len(named) == 0
		switch s.Code() {
		// A store refuses a former leader's write, so the request had no effect.
		case codes.FailedPrecondition:
			unsure = false
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		case codes.Unimplemented:
			return none, fmt.Errorf("broker %s does not support this request, upgrade it: %s", address, s.Message())
		default:
			return none, &Error{s.Code(), s.Message()}
		}
		switch {
		case unsure:
			return none, fmt.Errorf("broker %s did not confirm the change (%s): %w", address, s.Message(), ErrUnsure)
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
		return none, fmt.Errorf("the leader %s is not among the given brokers: add it to --broker or PENSTOCK_BROKER (%s)", Printable(leader), strings.Join(failed, "; "))
	case refused:
		return none, fmt.Errorf("no leading broker answers; a new one may be elected soon, try again: %s", strings.Join(failed, "; "))
	}
	return none, fmt.Errorf("no broker answers: %s (start one with penstock broker run, or give its address with --broker HOST:PORT or PENSTOCK_BROKER; a broker with certificates also needs --ca, --cert and --key)", strings.Join(failed, "; "))
}

// wrapped matches gRPC's message about a failed connection.
var wrapped = regexp.MustCompile(`^connection error: desc = "(?:transport: )?(?:[Ee]rror while dialing: )?(?:dial tcp(?: [^ ]+)?: )?(?:connect: )?(.*)"$`)

// short returns gRPC's message without the parts that only name gRPC.
func short(message string) string {
	if m := wrapped.FindStringSubmatch(message); m != nil {
		message = m[1]
	}
	return plain.NetworkText(message)
}

// Error is a refusal by a broker.
type Error struct {
	Code codes.Code
	What string
}

func (e *Error) Error() string { return e.What }

// Policy returns a version of the policy; 0: the newest.
func (c *Client) Policy(ctx context.Context, version uint64) (*cluster.PolicyVersion, error) {
	return ask(ctx, c, cluster.OperatorsClient.Policy, &cluster.PolicyRequest{Version: version})
}

// History returns up to limit versions, newest first.
func (c *Client) History(ctx context.Context, limit int) ([]*cluster.PolicyVersion, error) {
	a, err := ask(ctx, c, cluster.OperatorsClient.History, &cluster.HistoryRequest{Limit: uint32(limit)})
	return a.GetVersions(), err
}

// Apply makes a text the newest version of the policy, or a canary.
func (c *Client) Apply(ctx context.Context, r *cluster.ApplyRequest) (*cluster.PolicyVersion, error) {
	return change(ctx, c, cluster.OperatorsClient.Apply, r)
}

// KillSwitch turns the cluster's kill switch on or off.
func (c *Client) KillSwitch(ctx context.Context, on bool, note string) (*cluster.PolicyVersion, error) {
	return change(ctx, c, cluster.OperatorsClient.KillSwitch, &cluster.KillSwitchRequest{On: on, Note: note})
}

// EndCanary puts the canary's policy into force at all nodes, or takes it back.
func (c *Client) EndCanary(ctx context.Context, complete bool, base uint64, note string) (*cluster.PolicyVersion, error) {
	return change(ctx, c, cluster.OperatorsClient.EndCanary, &cluster.EndCanaryRequest{Complete: complete, Base: base, Note: note})
}

// SetWeight sets the weight of one application; 0 removes it. With force, the application need
// not be known.
func (c *Client) SetWeight(ctx context.Context, application string, weight uint32, force bool) (*cluster.PolicyVersion, error) {
	return change(ctx, c, cluster.OperatorsClient.SetWeight, &cluster.SetWeightRequest{Application: application, Weight: weight, Force: force})
}

// Nodes returns all nodes.
func (c *Client) Nodes(ctx context.Context) (*cluster.ListNodesAnswer, error) {
	return ask(ctx, c, cluster.OperatorsClient.ListNodes, &cluster.ListNodesRequest{})
}

// Applications returns the named application, or all applications at work if no name is given.
func (c *Client) Applications(ctx context.Context, application string) ([]*cluster.ApplicationState, error) {
	a, err := ask(ctx, c, cluster.OperatorsClient.ListApplications, &cluster.ListApplicationsRequest{Application: application})
	return a.GetApplications(), err
}

// ErrNotLive means that some nodes do not have a version in force yet.
var ErrNotLive = errors.New("not in force at all nodes")

// Await waits until all reporting nodes have a version in force, for at most the given time, and returns the nodes. If the
// version has the kill switch on, it waits until they report the mode off. It also waits while a new leader's nodes may not
// have reported yet. Errors: ErrNotLive, with the names of some nodes.
func (c *Client) Await(ctx context.Context, v *cluster.PolicyVersion, most time.Duration) (*cluster.ListNodesAnswer, error) {
	const named = 5
	version := v.GetVersion()
	deadline := time.Now().Add(most)
	for {
		a, err := c.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		var without []string
		for _, n := range a.GetNodes() {
			if n.GetPolicy() < version || v.GetOff() && n.GetMode() != cluster.Mode_MODE_OFF {
				without = append(without, Printable(n.GetNode().GetName()))
			}
		}
		if len(without) == 0 && !a.GetSettling() {
			return a, nil
		}
		if time.Now().After(deadline) {
			if len(without) == 0 {
				return a, fmt.Errorf("version %d may be %w: the %d reporting nodes have it after %v, but the broker began to lead a moment ago and other nodes may not have reported yet; see `penstock node list`",
					version, ErrNotLive, len(a.GetNodes()), most)
			}
			some := strings.Join(without[:min(named, len(without))], ", ")
			return a, fmt.Errorf("version %d is %w after %v: %d of %d do not have it: %s; the broker keeps sending it to them, see `penstock node list`",
				version, ErrNotLive, most, len(without), len(a.GetNodes()), some)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}
