package node

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"penstock/settings/plain"
)

// bindPause is between two tries to have an address that another process has.
const bindPause = time.Second

// listenOn has serve called with a listener on a TCP address, in a goroutine of the group.
// An address in use does not keep the daemon from governing: a daemon before it may have
// been killed while a disk hangs, and has its ports until the disk answers. It is tried
// until ctx ends, and that is said once; bound is "" then.
func (d *Daemon) listenOn(ctx context.Context, group *sync.WaitGroup, what, address string, serve func(net.Listener)) (bound string, err error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err == nil {
		group.Go(func() { serve(l) })
		return l.Addr().String(), nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return "", plain.Listen(address, err)
	}
	d.log.Error("an address is in use: the daemon governs without it, and listens there once it is free", "for", what, "error", plain.Listen(address, err))
	group.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(bindPause):
			}
			if l, err := config.Listen(ctx, "tcp", address); err == nil {
				d.log.Info("the address is free: the daemon listens there", "for", what, "listen", l.Addr().String())
				serve(l)
				return
			}
		}
	})
	return "", nil
}
