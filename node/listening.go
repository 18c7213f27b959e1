package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"

	"penstock/settings/plain"
	"penstock/wire/web"
)

// bindPause is the time between two attempts to listen at an address that another process uses.
const bindPause = time.Second

// port is a TCP address, or a Unix socket, that the daemon listens at. An address in use does not keep the daemon from
// governing: a previous daemon that was killed while a disk hung keeps its ports until the disk
// answers. The new daemon then logs this once and listens as soon as the address is free.
type port struct {
	what, address string
	log           *slog.Logger
	listener      net.Listener // nil: another process used the address
}

// listenOn listens at an address. what names the address's purpose in the log.
func (d *Daemon) listenOn(ctx context.Context, what, address string) (*port, error) {
	p := &port{what: what, address: address, log: d.log}
	var err error
	p.listener, err = web.Listen(ctx, address)
	if errors.Is(err, syscall.EADDRINUSE) {
		d.log.Error("an address is in use: the daemon governs without it, and listens there once it is free", "for", what, "error", plain.Listen(address, err))
		return p, nil
	}
	if err != nil {
		return nil, plain.Listen(address, err)
	}
	return p, nil
}

// bound returns the address; "" while another process uses it.
func (p *port) bound() string {
	if p.listener == nil {
		return ""
	}
	return web.Bound(p.listener)
}

// serve waits until the port has a listener and passes the listener to the function serve. The
// method returns when that function returns or ctx ends.
func (p *port) serve(ctx context.Context, serve func(net.Listener)) {
	if p.listener != nil {
		serve(p.listener)
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(bindPause):
		}
		if l, err := web.Listen(ctx, p.address); err == nil {
			p.log.Info("the address is free: the daemon listens there", "for", p.what, "listen", web.Bound(l))
			serve(l)
			return
		}
	}
}

// close frees the address of a port that was never served.
func (p *port) close() {
	if p != nil && p.listener != nil {
		p.listener.Close()
	}
}
