package node

import (
	"context"
	"net"

	"penstock/node/ipc"
	"penstock/node/status"
)

// This file serves agents on JVMs without Unix sockets, at a port of the loopback address.

// listenLoopback listens at the address of the settings. It returns nil if there is none.
func (d *Daemon) listenLoopback(ctx context.Context) (*port, error) {
	if d.settings.Loopback == "off" {
		return nil, nil
	}
	return d.listenOn(ctx, "agents by loopback", d.settings.Loopback)
}

// serveLoopback serves agents until ctx ends. While it does, a file beside the socket names the port.
func (d *Daemon) serveLoopback(ctx context.Context, at *port) {
	if at == nil {
		return
	}
	at.serve(ctx, func(l net.Listener) {
		withdraw, err := ipc.Announce(d.settings.Socket, l.Addr())
		if err != nil {
			l.Close()
			d.log.Error("agents on JVMs without Unix sockets cannot connect", "error", err)
			return
		}
		address := l.Addr().String()
		d.loopback.Store(&address)
		d.log.Info("agents on JVMs without Unix sockets may connect", "address", address, "file", ipc.PortFile(d.settings.Socket))
		if err := d.server.ServeLoopback(ctx, l.(*net.TCPListener)); err != nil {
			d.log.Error("agents on JVMs without Unix sockets can no longer connect", "error", err)
		}
		d.loopback.Store(nil)
		if err := withdraw(); err != nil {
			d.log.Warn("the file with the port of the loopback address stays behind; agents ignore it", "error", err)
		}
	})
}

func (d *Daemon) loopbackStatus() status.Loopback {
	s := status.Loopback{Setting: d.settings.Loopback, NoSocket: d.server.Stats.NoSocket.Load(), NoProcess: d.server.Stats.NoProcess.Load()}
	if at := d.loopback.Load(); at != nil {
		s.Listen, s.File = *at, ipc.PortFile(d.settings.Socket)
	}
	for _, a := range d.server.Agents() {
		if a.Loopback {
			s.Agents++
		}
	}
	return s
}
