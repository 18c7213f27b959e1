// Package deviceplugin offers the disk bandwidth of this machine to the kubelet, as a device plug-in of Kubernetes
// (v1beta1).
//
// Problem: an extended resource of a node has to be written into the node's status by somebody with the right to do so,
// and is lost when the node registers again. A device plug-in needs no such right: it listens on a socket in the
// kubelet's folder, and registers with the kubelet of its machine. Choice: one device is one MB/s, which
// has no environment, no mounts and no device file, so that nothing in a container changes. The kubelet removes all sockets when it
// starts, and does not know plug-ins of before; so the plug-in looks every few seconds whether its socket and the kubelet's are
// still the same, and otherwise begins again.
//
// The name of the socket is the same for all daemons, so a second daemon on the machine would take the place of the first. A
// daemon therefore locks the folder itself while it offers bandwidth. (The kubelet would remove a file for the lock.) A
// daemon without the lock touches nothing in the folder, and tries again later.
//
// No kubelet could be run for the tests. They use one of their own, with the real protocol.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	wire "penstock/wire/deviceplugin"
)

const (
	// DefaultFolder is the kubelet's folder of device plug-ins.
	DefaultFolder = "/var/lib/kubelet/device-plugins"
	// MaxBandwidth is the largest bandwidth that can be offered, in MB/s: the kubelet keeps a name for each.
	MaxBandwidth  = 10_000
	version       = "v1beta1"
	endpoint      = "penstock.sock"
	kubeletSocket = "kubelet.sock"
	lookPeriod    = 5 * time.Second
	registerWait  = 10 * time.Second
	maxBackOff    = time.Minute
	maxMessage    = 1 << 20 // bytes of a request
)

var errOther = errors.New("another daemon on this machine offers bandwidth to this kubelet: remove device_plugin from the settings of one of them. This daemon offers bandwidth when the other one ends")

// Options configures a Plugin.
type Options struct {
	Folder    string // the kubelet's
	Resource  string // the extended resource, such as penstock.io/disk-bandwidth
	Bandwidth int    // MB/s, 1 to MaxBandwidth
	Log       *slog.Logger
}

// State is the state of a Plugin.
type State struct {
	Registered time.Time // with the kubelet that runs now; zero: not registered
	Watched    int       // streams over which the kubelet follows the offer; 0: it does not know the resource
	Error      string    // why it is not registered
}

// Plugin offers bandwidth. Its methods may be called by several goroutines.
type Plugin struct {
	wire.UnimplementedDevicePluginServer
	options Options
	devices []*wire.Device
	period  time.Duration // shorter in tests

	mu    sync.Mutex
	state State
}

// New returns a plug-in that does nothing yet.
func New(o Options) *Plugin {
	p := &Plugin{options: o, period: lookPeriod}
	for i := range o.Bandwidth {
		p.devices = append(p.devices, &wire.Device{Id: fmt.Sprintf("mb-%05d", i), Health: "Healthy"})
	}
	return p
}

// State returns the present state.
func (p *Plugin) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Run offers the bandwidth until ctx ends. Errors are logged once, and tried again.
func (p *Plugin) Run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		err := p.serve(ctx)
		p.mu.Lock()
		before := p.state.Error
		p.state.Registered, p.state.Error = time.Time{}, ""
		if err != nil {
			p.state.Error = err.Error()
		}
		p.mu.Unlock()
		wait := time.Duration(0)
		if err != nil {
			wait = min(p.period<<min(failures, 20), maxBackOff)
			failures++
			if before != err.Error() {
				p.options.Log.Warn("disk bandwidth is not offered to the kubelet", "folder", p.options.Folder, "error", err)
			}
		} else {
			failures = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// serve listens, registers, and serves until ctx ends or one of the sockets has changed.
func (p *Plugin) serve(ctx context.Context) error {
	path, kubelet := filepath.Join(p.options.Folder, endpoint), filepath.Join(p.options.Folder, kubeletSocket)
	lock, err := lockFolder(p.options.Folder)
	if err != nil {
		return err
	}
	defer lock.Close() // after the socket is removed
	theirs, err := identify(kubelet)
	if err != nil {
		return fmt.Errorf("the kubelet's socket: %w: does the kubelet run, and is this its folder (device_plugin.folder)?", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // of an earlier daemon, which was killed
		return fmt.Errorf("the plug-in's socket: %w: the daemon must have write access to the kubelet's folder", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("the plug-in's socket: %w: the daemon must have write access to the kubelet's folder", err)
	}
	defer listener.Close() // removes the socket, unless the server has done it
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	ours, err := identify(path)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	wire.RegisterDevicePluginServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer server.Stop() // ends the kubelet's stream
	if err := p.register(ctx, kubelet); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	p.mu.Lock()
	p.state.Registered, p.state.Error = time.Now(), ""
	p.mu.Unlock()
	p.options.Log.Info("disk bandwidth is offered to the kubelet", "resource", p.options.Resource, "mb_per_second", p.options.Bandwidth)
	ticker := time.NewTicker(p.period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return fmt.Errorf("the plug-in's server has ended: %w", err)
		case <-ticker.C:
		}
		now, err := identify(path)
		if kubeletNow, err2 := identify(kubelet); err != nil || err2 != nil || now != ours || kubeletNow != theirs {
			return nil // the kubelet has started again
		}
	}
}

// lockFolder locks a folder until the result is closed or the process ends. It returns errOther if another process has
// locked the folder.
func lockFolder(folder string) (*os.File, error) {
	f, err := os.OpenFile(folder, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the kubelet's folder: %w: does the kubelet run, and is this its folder (device_plugin.folder)?", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errOther
	}
	return nil, fmt.Errorf("lock the kubelet's folder %s: %w", folder, err)
}

func (p *Plugin) register(ctx context.Context, kubelet string) error {
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = wire.NewRegistrationClient(conn).Register(ctx, &wire.RegisterRequest{Version: version, Endpoint: endpoint, ResourceName: p.options.Resource, Options: &wire.DevicePluginOptions{}})
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	return nil
}

// file identifies a socket.
type file struct {
	device, inode uint64
	changed       syscall.Timespec
}

func identify(path string) (file, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return file{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&os.ModeSocket == 0 {
		return file{}, fmt.Errorf("%s is no socket", path)
	}
	// An inode's number is used again at once on some file systems.
	return file{uint64(st.Dev), st.Ino, st.Ctim}, nil
}

// GetDevicePluginOptions implements the protocol.
func (p *Plugin) GetDevicePluginOptions(context.Context, *wire.Empty) (*wire.DevicePluginOptions, error) {
	return &wire.DevicePluginOptions{}, nil
}

// ListAndWatch implements the protocol. The list never changes.
func (p *Plugin) ListAndWatch(_ *wire.Empty, stream grpc.ServerStreamingServer[wire.ListAndWatchResponse]) error {
	p.watched(1)
	defer p.watched(-1)
	if err := stream.Send(&wire.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *Plugin) watched(streams int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Watched += streams
}

// Allocate implements the protocol. A container needs nothing to use bandwidth.
func (p *Plugin) Allocate(_ context.Context, r *wire.AllocateRequest) (*wire.AllocateResponse, error) {
	out := &wire.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		if n := len(c.GetDevicesIds()); n > len(p.devices) {
			return nil, status.Errorf(codes.InvalidArgument, "%d MB/s: only %d are offered", n, len(p.devices))
		}
		out.ContainerResponses = append(out.ContainerResponses, &wire.ContainerAllocateResponse{})
	}
	return out, nil
}
