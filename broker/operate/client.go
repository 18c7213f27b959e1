// Package operate is the operators' side of the broker: how it is asked, what a policy
// would change before it is in force, and the view of the whole cluster.
package operate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
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
		conn, err := grpc.NewClient(a, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerMost)))
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

// ask puts a question to the first broker that answers and leads.
func ask[Q, A any](ctx context.Context, c *Client, call func(cluster.OperatorsClient, context.Context, Q, ...grpc.CallOption) (A, error), question Q) (A, error) {
	var none A
	var failed []string
	for i, conn := range c.conns {
		one, cancel := context.WithTimeout(ctx, wait)
		answer, err := call(cluster.NewOperatorsClient(conn), one, question)
		cancel()
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			return none, ctx.Err()
		}
		s := status.Convert(err)
		switch s.Code() {
		case codes.Unavailable, codes.FailedPrecondition, codes.DeadlineExceeded:
			failed = append(failed, c.addresses[i]+": "+s.Message())
		case codes.Unimplemented:
			return none, fmt.Errorf("broker %s is too old to be asked this: %s", c.addresses[i], s.Message())
		default:
			return none, &Error{s.Code(), s.Message()}
		}
	}
	return none, fmt.Errorf("no broker answers (--broker HOST:PORT or PENSTOCK_BROKER says where it is; one with certificates needs --ca, --cert and --key): %s", strings.Join(failed, "; "))
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
	return ask(ctx, c, cluster.OperatorsClient.Apply, &cluster.ApplyRequest{Text: text, Base: base, Note: note})
}

// SetWeight sets the weight of one application; 0 takes it back.
func (c *Client) SetWeight(ctx context.Context, application string, weight uint32) (*cluster.PolicyVersion, error) {
	return ask(ctx, c, cluster.OperatorsClient.SetWeight, &cluster.SetWeightRequest{Application: application, Weight: weight})
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
// says how many there are. Errors: ErrNotLive, with the names of some that have it not.
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
		if len(without) == 0 {
			return len(a.GetNodes()), nil
		}
		if time.Now().After(deadline) {
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
