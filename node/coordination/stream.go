package coordination

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"penstock/wire/cluster"
)

// Dial returns a client of a broker, which connects at its first use. If secure is nil, the
// connection is unencrypted.
func Dial(broker string, secure *tls.Config, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = credentials.NewTLS(secure)
	}
	return grpc.NewClient(broker, append([]grpc.DialOption{grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cluster.MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectWait + shakeWait}),
		grpc.WithContextDialer(Connect),
		grpc.WithStaticStreamWindowSize(cluster.Window), grpc.WithStaticConnWindowSize(2 * cluster.Window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second})}, more...)...)
}

// Connect makes the TCP connection of a client that Dial returns.
func Connect(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: connectWait}).DialContext(ctx, "tcp", address)
}

// notLeading is the refusal of a broker that does not lead.
type notLeading struct {
	error
	leader string // the leader as this broker knows it; may be empty
}

// open opens a stream. While it tries to reach the broker, it also checks whether the parts in
// force have expired.
func (c *Client) open(ctx context.Context, nodes cluster.NodesClient) (s cluster.Nodes_ExchangeClient, err error) {
	opened := make(chan struct{})
	go func() {
		s, err = nodes.Exchange(ctx)
		close(opened)
	}()
	ticker := time.NewTicker(c.o.Period)
	defer ticker.Stop()
	for {
		select {
		case <-opened:
			return s, err
		case <-ticker.C:
			c.expire()
		}
	}
}

// stream runs one stream with one broker to its end.
func (c *Client) stream(ctx context.Context, broker string) (err error) {
	var secure *tls.Config
	if c.o.TLS != nil {
		if secure, err = c.o.TLS(); err != nil {
			return fmt.Errorf("certificates: %w", err)
		}
	}
	var reached atomic.Bool
	more := []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := Connect(ctx, address)
		if err == nil || errors.As(err, new(*net.DNSError)) { // each attempt is work for the name server
			reached.Store(true)
		}
		return conn, err
	})}
	if len(c.o.Brokers) > 1 {
		more = append(more, grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: severalWait}))
	}
	conn, err := Dial(broker, secure, more...)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes := cluster.NewNodesClient(conn)
	s, err := c.open(ctx, nodes)
	switch {
	case err != nil && !reached.Load():
		return fmt.Errorf("%w: %w", errNotReached, err)
	case err != nil:
		return err
	}
	c.setBroker(nodes)
	defer c.setBroker(nil)
	defer func() {
		// Only a stream that the broker ended has a trailer.
		if code := status.Code(err); code == codes.FailedPrecondition || code == codes.Unavailable {
			if named := s.Trailer().Get(cluster.LeaderKey); len(named) == 1 {
				err = notLeading{err, named[0]}
			}
		}
	}()
	c.apps.renew()
	c.queues.renew()
	for _, t := range c.devices { // service without a stream is not reported
		t.coord.Forget()
		t.at = time.Time{}
	}
	answers, failed := make(chan *cluster.Answer, 1), make(chan error, 1)
	go func() {
		for {
			a, err := s.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case answers <- a:
			case <-ctx.Done():
				return
			}
		}
	}()
	ticker := time.NewTicker(c.o.Period)
	defer ticker.Stop()
	var sequence, answered uint64
	heard := time.Now()
	sent := map[uint64]time.Time{}
	heed := func(a *cluster.Answer) error {
		if a.GetSequence() <= answered || a.GetSequence() > sequence {
			return fmt.Errorf("answer %d after %d of %d reports", a.GetSequence(), answered, sequence)
		}
		if err := c.follow(a.GetEpoch()); err != nil {
			return err
		}
		inForce, err := c.take(a)
		if err != nil {
			return err
		}
		answered, heard = a.GetSequence(), time.Now()
		c.mu.Lock()
		c.state.Broker, c.state.Mistake = broker, ""
		c.state.Answered = time.Now()
		c.state.Delay = time.Since(sent[answered])
		c.state.Policy, c.state.Canary = a.GetPolicy(), a.GetCanary()
		c.state.InForce = inForce
		c.mu.Unlock()
		for n := range sent {
			if n <= answered {
				delete(sent, n)
			}
		}
		return nil
	}
	for {
		if sequence-answered < underWay { // otherwise the broker is slow and already has enough work
			sequence++
			r := c.report(sequence)
			if sequence == 1 {
				r.Node = &cluster.Node{Name: c.o.Node, Version: c.Version, PeriodMs: uint32(c.o.Period.Milliseconds()), Address: c.Address, Hosts: hosts(), Levels: true}
			}
			sent[sequence] = time.Now()
			if err := s.Send(r); err != nil {
				select {
				case err = <-failed: // Recv returns the better error
				case <-time.After(time.Second):
				}
				return err
			}
		}
		// Answers that have arrived in the meantime are taken before the checks below.
		for waiting := true; waiting; {
			select {
			case a := <-answers:
				if err := heed(a); err != nil {
					return err
				}
			default:
				waiting = false
			}
		}
		c.expire()
		if silence := time.Since(heard); len(c.o.Brokers) > 1 && silence > max(unanswered*c.o.Period, unansweredLeast) {
			return fmt.Errorf("%w for %v", errSilent, silence.Round(time.Millisecond))
		}
	wait:
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-failed:
				return err
			case a := <-answers:
				if err := heed(a); err != nil {
					return err
				}
			case <-ticker.C:
				break wait
			}
		}
	}
}

// errNotReached: no machine accepted the connection at the broker's address.
var errNotReached = errors.New("the broker is not reached")

// errEpoch: another broker has become the leader since.
var errEpoch = errors.New("an answer from a former leader (its epoch is too small)")

// errSilent: the broker has not answered for too long.
var errSilent = errors.New("no answer")

// follow compares an answer's epoch with the largest one so far. A broker that answers with a
// smaller epoch was cut off or stopped while another broker became the leader, and has not noticed
// yet.
func (c *Client) follow(epoch uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch < c.state.Epoch && time.Since(c.state.Answered) < fence {
		c.state.Refused++
		return fmt.Errorf("%w: epoch %d after %d", errEpoch, epoch, c.state.Epoch)
	}
	c.state.Epoch = epoch
	return nil
}
