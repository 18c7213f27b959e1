package peers

import (
	"net"
	"sync"
)

// bounded is a listener of which at most so many connections are open; the next one is
// hung up on, so that those who come later are not kept waiting for those who hold on.
type bounded struct {
	net.Listener
	free chan struct{}
}

// Bounded makes such a listener of l.
func Bounded(l net.Listener, n int) net.Listener { return &bounded{l, make(chan struct{}, n)} }

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.free <- struct{}{}:
			return &counted{Conn: c, end: sync.OnceFunc(func() { <-b.free })}, nil
		default:
			c.Close()
		}
	}
}

type counted struct {
	net.Conn
	end func()
}

func (c *counted) Close() error {
	defer c.end()
	return c.Conn.Close()
}
