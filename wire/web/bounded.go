package web

import (
	"net"
	"sync"
)

// bounded is a listener with a maximum number of open connections. Further connections are closed
// at once, so that their peers do not wait until other connections end.
type bounded struct {
	net.Listener
	free chan struct{}
}

// Bounded returns a listener that accepts from l and keeps at most n connections open.
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
