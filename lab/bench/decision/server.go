package decision

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"

	"penstock/node/config"
	"penstock/node/device"
	"penstock/node/ipc"
	"penstock/wire"
)

// Names of blocks. The server distinguishes streams by the name of their block.
const (
	coldBlock     = "/cold"     // 64 KiB that a device has to deliver
	residentBlock = "/resident" // in the page cache
	endlessBlock  = "/endless"  // never requires a wait
	coldBytes     = 64 << 10
)

// server is the daemon's own socket and device loop, with files that take no
// time in place of a DataNode's.
type server struct {
	path   string
	loop   *device.Loop
	stride uint32
	quanta atomic.Int64
}

// serve starts a server in dir. stride 0 is the daemon's default. The returned function stops the
// server.
func serve(ctx context.Context, dir, name string, stride uint32) (*server, func() error, error) {
	cfg, err := (&config.Node{}).DeviceConfig("", false)
	if err != nil {
		return nil, nil, err
	}
	if stride == 0 {
		stride = cfg.Stride()
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	s := &server{path: filepath.Join(dir, name), stride: stride}
	if s.loop, err = device.New(device.Options{Name: "memory", Config: cfg, Mode: device.Enforce, Policy: equal, Log: log}); err != nil {
		return nil, nil, err
	}
	listener, err := ipc.Listen(s.path, 0o600, -1)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	looped, served := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(looped)
		s.loop.Run(ctx)
	}()
	go func() {
		served <- (&ipc.Server{Opener: s, Allow: func(uint32, wire.Role) bool { return true }, Log: log}).Serve(ctx, listener)
	}()
	return s, func() error {
		cancel()
		<-looped
		return <-served
	}, nil
}

// Register implements ipc.Opener.
func (s *server) Register(p ipc.Peer) (ipc.Registration, error) {
	return registration{s, bytes.Repeat([]uint8{1}, len(p.Hello.Directories))}, nil
}

// Heartbeat implements ipc.Opener.
func (s *server) Heartbeat() (uint64, device.Mode) { return s.loop.Tick(), device.Enforce }

// Stride implements ipc.Opener.
func (s *server) Stride(wire.Role) uint32 { return s.stride }

type registration struct {
	*server
	devices []uint8
}

// Open implements ipc.Registration.
func (r registration) Open(m wire.Open, marker device.Marker) (ipc.Stream, error) {
	request := device.OpenRequest{Marker: marker, ID: m.Stream, Flow: m.Flow, Write: m.Direction == wire.Write,
		From: m.From, To: m.To}
	switch {
	case strings.HasSuffix(m.Path, coldBlock):
		request.Block = &memoryFile{size: coldBytes, quanta: &r.quanta}
	case strings.HasSuffix(m.Path, residentBlock):
		request.Block = &memoryFile{size: coldBytes, resident: true, quanta: &r.quanta}
	case strings.HasSuffix(m.Path, endlessBlock):
		request.Block = &memoryFile{resident: true, quanta: &r.quanta}
		request.Write, request.To = false, request.From // nothing to wait for: the mark opens at once
	default:
		return nil, errors.New("no such block")
	}
	return r.loop.Open(request), nil
}

// Devices implements ipc.Registration: all directories are on the one device.
func (r registration) Devices() []uint8 { return r.devices }

// Alive implements ipc.Registration.
func (r registration) Alive() uint64 {
	if r.loop.Alive() {
		return 1<<1 | 1<<wire.NetworkDevice
	}
	return 1 << wire.NetworkDevice
}

// Free implements ipc.Registration: the bench measures the answers for which readers wait.
func (r registration) Free() uint64 { return 0 }

// NoLongerFree implements ipc.Registration.
func (r registration) NoLongerFree() <-chan struct{} { return nil }

// Close implements ipc.Registration.
func (r registration) Close() {}

// echo serves a socket that returns every byte, for the minimum cost of a round trip.
func echo(dir string) (path string, stop func() error, err error) {
	path = filepath.Join(dir, "echo.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			c, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if _, err := c.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return path, listener.Close, nil
}
