package deviceplugin

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	wire "penstock/wire/deviceplugin"
)

// kubelet is the part of a kubelet that accepts plug-ins. It speaks the real protocol; no real kubelet could be run.
type kubelet struct {
	wire.UnimplementedRegistrationServer
	t      *testing.T
	folder string
	server *grpc.Server
	refuse error

	mu         sync.Mutex
	registered []*wire.RegisterRequest
	hang       chan struct{} // nil: it answers at once
}

// startKubelet removes all sockets of the folder, as a kubelet does, and listens.
func startKubelet(t *testing.T, folder string, refuse error) *kubelet {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(folder, "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sockets {
		if err := os.Remove(s); err != nil {
			t.Fatal(err)
		}
	}
	k := &kubelet{t: t, folder: folder, server: grpc.NewServer(), refuse: refuse}
	wire.RegisterRegistrationServer(k.server, k)
	l, err := net.Listen("unix", filepath.Join(folder, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = k.server.Serve(l) }()
	t.Cleanup(k.server.Stop)
	return k
}

func (k *kubelet) Register(_ context.Context, r *wire.RegisterRequest) (*wire.Empty, error) {
	k.mu.Lock()
	k.registered = append(k.registered, r)
	hang := k.hang
	k.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return &wire.Empty{}, k.refuse
}

func (k *kubelet) registrations() []*wire.RegisterRequest {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.registered
}

// dial connects to the plug-in that has registered last.
func (k *kubelet) dial() wire.DevicePluginClient {
	k.t.Helper()
	all := k.registrations()
	conn, err := grpc.NewClient("unix:"+filepath.Join(k.folder, all[len(all)-1].GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { conn.Close() })
	return wire.NewDevicePluginClient(conn)
}

// shortDir returns a folder with a short path: that of a Unix socket has at most 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plugin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come", what)
		}
	}
}

func TestPlugin(t *testing.T) {
	folder := shortDir(t)
	p := New(Options{Folder: folder, Resource: "penstock.io/disk-bandwidth", Bandwidth: 200, Log: slog.New(slog.DiscardHandler)})
	p.period = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { p.Run(ctx); close(ended) }()
	eventually(t, "an error without a kubelet", func() bool { return strings.Contains(p.State().Error, "the kubelet's socket") })

	k := startKubelet(t, folder, nil)
	eventually(t, "the registration", func() bool { return !p.State().Registered.IsZero() })
	if r := k.registrations()[0]; r.GetVersion() != "v1beta1" || r.GetEndpoint() != "penstock.sock" || r.GetResourceName() != "penstock.io/disk-bandwidth" || p.State().Error != "" {
		t.Errorf("%v, %+v", r, p.State())
	}
	client := k.dial()
	if o, err := client.GetDevicePluginOptions(t.Context(), &wire.Empty{}); err != nil || o.GetPreStartRequired() || o.GetGetPreferredAllocationAvailable() {
		t.Errorf("%v, %v", o, err)
	}
	stream, err := client.ListAndWatch(t.Context(), &wire.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := stream.Recv()
	if err != nil || len(list.GetDevices()) != 200 {
		t.Fatalf("%d devices, %v", len(list.GetDevices()), err)
	}
	ids := map[string]bool{}
	for _, d := range list.GetDevices() {
		ids[d.GetId()] = d.GetHealth() == "Healthy"
	}
	if len(ids) != 200 || !ids["mb-00000"] || !ids["mb-00199"] || p.State().Watched != 1 {
		t.Errorf("%d different devices, %+v", len(ids), p.State())
	}
	for n, ok := range map[int]bool{1: true, 200: true, 201: false} {
		r := &wire.AllocateRequest{ContainerRequests: []*wire.ContainerAllocateRequest{{DevicesIds: make([]string, n)}, {}}}
		got, err := client.Allocate(t.Context(), r)
		if (err == nil) != ok || ok && len(got.GetContainerResponses()) != 2 {
			t.Errorf("%d MB/s: %v, %v", n, got, err)
		}
	}

	// The kubelet starts again: it has removed the plug-in's socket, and knows nothing.
	k.server.Stop()
	k = startKubelet(t, folder, nil)
	eventually(t, "the second registration", func() bool { return len(k.registrations()) > 0 })
	if _, err := stream.Recv(); err == nil {
		t.Error("the old stream goes on")
	}
	if _, err := k.dial().GetDevicePluginOptions(t.Context(), &wire.Empty{}); err != nil {
		t.Error(err)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("Run does not end")
	}
	if _, err := os.Stat(filepath.Join(folder, endpoint)); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	if s := p.State(); !s.Registered.IsZero() {
		t.Errorf("%+v", s)
	}
}

// A kubelet that refuses, and files that are no sockets.
func TestRefusals(t *testing.T) {
	folder := shortDir(t)
	startKubelet(t, folder, context.DeadlineExceeded)
	p := New(Options{Folder: folder, Resource: "cpu", Bandwidth: 1, Log: slog.New(slog.DiscardHandler)})
	if err := p.serve(t.Context()); err == nil || !strings.Contains(err.Error(), "register with the kubelet") {
		t.Errorf("%v", err)
	}
	// A socket of an earlier daemon is replaced.
	old, err := net.Listen("unix", filepath.Join(folder, endpoint))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := p.serve(t.Context()); err == nil || !strings.Contains(err.Error(), "register with the kubelet") {
		t.Errorf("%v", err)
	}
	other := shortDir(t)
	if err := os.WriteFile(filepath.Join(other, kubeletSocket), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.options.Folder = other
	if err := p.serve(t.Context()); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("%v", err)
	}
}

// A second daemon leaves the offer to the first, and its end does not take back the offer. It offers bandwidth when the
// first one ends, also if the first one is killed.
func TestTwoDaemons(t *testing.T) {
	folder := shortDir(t)
	k := startKubelet(t, folder, nil)
	start := func() (p *Plugin, end func()) {
		p = New(Options{Folder: folder, Resource: "penstock.io/disk-bandwidth", Bandwidth: 7, Log: slog.New(slog.DiscardHandler)})
		p.period = 10 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()
		return p, func() {
			cancel()
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("Run does not end")
			}
		}
	}
	first, endFirst := start()
	eventually(t, "the first registration", func() bool { return !first.State().Registered.IsZero() })
	stream, err := k.dial().ListAndWatch(t.Context(), &wire.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	socket, err := identify(filepath.Join(folder, endpoint))
	if err != nil {
		t.Fatal(err)
	}
	second, endSecond := start()
	eventually(t, "the second one's error", func() bool { return strings.Contains(second.State().Error, "another daemon on this machine") })
	endSecond()
	if now, err := identify(filepath.Join(folder, endpoint)); err != nil || now != socket {
		t.Errorf("the socket: %+v, then %+v, %v", socket, now, err)
	}
	if s := first.State(); s.Registered.IsZero() || s.Watched != 1 || len(k.registrations()) != 1 {
		t.Errorf("%+v, %d registrations", s, len(k.registrations()))
	}

	third, endThird := start()
	eventually(t, "the third one's error", func() bool { return third.State().Error != "" })
	endFirst()
	eventually(t, "the third one's registration", func() bool { return !third.State().Registered.IsZero() })
	if _, err := k.dial().GetDevicePluginOptions(t.Context(), &wire.Empty{}); err != nil || len(k.registrations()) != 2 {
		t.Errorf("%v, %d registrations", err, len(k.registrations()))
	}
	endThird()
	if _, err := os.Stat(filepath.Join(folder, endpoint)); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// A kubelet that does not answer neither delays the end of the daemon nor makes it leave a socket.
func TestAKubeletThatHangs(t *testing.T) {
	folder := shortDir(t)
	k := startKubelet(t, folder, nil)
	hang := make(chan struct{})
	defer close(hang)
	k.mu.Lock()
	k.hang = hang
	k.mu.Unlock()
	var log strings.Builder
	p := New(Options{Folder: folder, Resource: "penstock.io/disk-bandwidth", Bandwidth: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { p.Run(ctx); close(ended) }()
	eventually(t, "the request", func() bool { return len(k.registrations()) > 0 })
	if s := p.State(); !s.Registered.IsZero() {
		t.Errorf("%+v", s)
	}
	begun := time.Now()
	cancel()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("Run does not end")
	}
	if took := time.Since(begun); took >= registerWait {
		t.Errorf("the end took %v", took)
	}
	if log.Len() > 0 {
		t.Errorf("an end on purpose is no error: %s", &log)
	}
	if _, err := os.Stat(filepath.Join(folder, endpoint)); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestLargestOffer(t *testing.T) {
	p := New(Options{Bandwidth: MaxBandwidth})
	if n := len(p.devices); n != MaxBandwidth || p.devices[n-1].GetId() != "mb-09999" {
		t.Errorf("%d devices", n)
	}
}
