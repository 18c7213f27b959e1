package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"penstock/lab/poll"
	"penstock/lab/ports"
)

// Ensemble is a group of servers that keep the same data. Each server can be killed and started
// separately. The remaining servers accept requests as long as they are a majority.
type Ensemble struct {
	Servers []*Server

	patience time.Duration
}

// StartEnsemble starts n servers, 3 to 7, on one host, and returns when all accept requests. Each
// has its own folder in o.Dir. o.Address is only the host, default 127.0.0.1; the servers use free
// ports.
func StartEnsemble(ctx context.Context, o Options, n int) (*Ensemble, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if n < 3 || n > 7 || o.Secure != nil {
		return nil, fmt.Errorf("zookeeper: an ensemble of %d servers: use 3 to 7, without TLS", n)
	}
	host := o.Address
	if host == "" {
		host = "127.0.0.1"
	}
	free, err := ports.Free(3 * n)
	if err != nil {
		return nil, err
	}
	e := &Ensemble{patience: o.Patience}
	var members strings.Builder
	for i := range n {
		at := free[3*i:]
		fmt.Fprintf(&members, "server.%d=%s:%d:%d\n", i+1, host, at[1], at[2])
		own := o
		own.Dir = filepath.Join(o.Dir, fmt.Sprintf("zookeeper-%d", i+1))
		own.Address = net.JoinHostPort(host, strconv.Itoa(at[0]))
		if err := os.MkdirAll(own.Dir, 0o755); err != nil {
			return nil, err
		}
		s, err := newServer(own)
		if err != nil {
			return nil, err
		}
		s.id = i + 1
		e.Servers = append(e.Servers, s)
	}
	for _, s := range e.Servers {
		s.members = members.String()
	}
	if err := e.Start(ctx); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// Start starts the servers that are not running, and returns when all servers accept requests.
func (e *Ensemble) Start(ctx context.Context) error {
	for _, s := range e.Servers {
		if s.Alive() {
			continue
		}
		if err := s.spawn(); err != nil {
			return err
		}
	}
	for _, s := range e.Servers {
		if err := s.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Addresses returns the servers' addresses for clients, separated by commas.
func (e *Ensemble) Addresses() string {
	var all []string
	for _, s := range e.Servers {
		all = append(all, s.Address)
	}
	return strings.Join(all, ",")
}

// Leader waits until one of the servers leads the others, and returns it.
func (e *Ensemble) Leader(ctx context.Context) (leader *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.patience)
	defer cancel()
	err = poll.Until(ctx, 20*time.Millisecond, func() (bool, error) {
		for _, s := range e.Servers {
			if mode, err := s.Mode(ctx); err == nil && mode == "leader" {
				leader = s
			}
		}
		return leader != nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("no server of the ensemble leads: %w", err)
	}
	return leader, nil
}

// Stop ends all servers.
func (e *Ensemble) Stop() error {
	var errs []error
	for _, s := range e.Servers {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}
