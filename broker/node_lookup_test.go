package broker

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"penstock/broker/certs"
	"penstock/wire/cluster"
)

// from is the stream of a caller with an address, without TLS.
type from struct {
	grpc.ServerStream
	ctx context.Context
}

func (f from) Context() context.Context       { return f.ctx }
func (f from) Send(*cluster.Answer) error     { return nil }
func (f from) Recv() (*cluster.Report, error) { return nil, context.Canceled }
func callFrom(address string) context.Context {
	ip := net.ParseIP(address)
	return peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: ip, Port: 4711}})
}

func (s *served) settled(t *testing.T, name, address string, hosts ...string) *session {
	t.Helper()
	got, err := s.join(from{ctx: callFrom(address)}, &cluster.Report{Sequence: 1,
		Node: &cluster.Node{Name: name, Address: "0.0.0.0:9718", Hosts: hosts, Version: "secret"}}, s.leadership.State().Epoch)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (s *served) where(address string) string {
	n, err := s.Where(callFrom("192.0.2.250"), &cluster.Host{Address: address})
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	return n.GetName()
}

func TestWhere(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "default: 1")
	n1 := b.settled(t, "n1", "192.0.2.1", "10.0.0.1", "2001:db8::1", "172.17.0.1", "192.0.2.1")
	b.settled(t, "n2", "::ffff:192.0.2.2", "10.0.0.2", "172.17.0.1")
	b.settled(t, "liar", "192.0.2.3", "192.0.2.1", "10.0.0.2")
	b.settled(t, "here", "127.0.0.1", "192.0.2.9")
	b.settled(t, "twin1", "192.0.2.7")
	b.settled(t, "twin2", "192.0.2.7", "192.0.2.9")
	for address, want := range map[string]string{
		"192.0.2.1":        "n1", // another node also states it, which does not count
		"::ffff:192.0.2.1": "n1",
		"10.0.0.1":         "n1",
		"2001:db8::1":      "n1",
		"192.0.2.2":        "n2",
		"192.0.2.3":        "liar",
		"10.0.0.2":         "NotFound: 10.0.0.2 is ambiguous: 2 nodes have this address: liar, n2",
		"172.17.0.1":       "NotFound: 172.17.0.1 is ambiguous: 2 nodes have this address: n1, n2",
		"192.0.2.7":        "NotFound: 192.0.2.7 is ambiguous: 2 nodes have this address: twin1, twin2",
		"192.0.2.9":        "NotFound: 192.0.2.9 is ambiguous: 2 nodes have this address: here, twin2",
		"192.0.2.200":      "NotFound: no node reports from 192.0.2.200 or states this address",
	} {
		if got := b.where(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	for _, address := range []string{"", "n1", "127.0.0.1", "::1", "0.0.0.0", "224.0.0.1", "10.0.0.1:1", strings.Repeat("1", 1000)} {
		if got := b.where(address); !strings.HasPrefix(got, "InvalidArgument") || len(got) > 200 {
			t.Errorf("%q: %s", address, got)
		}
	}
	n, err := b.Where(callFrom("192.0.2.250"), &cluster.Host{Address: "192.0.2.2"})
	if err != nil || n.GetAddress() != "0.0.0.0:9718" || n.GetVersion() != "" || len(n.GetHosts()) > 0 {
		t.Errorf("%v, %v: want its name and its address, no more", n, err)
	}

	// If there are many nodes, the first five are named.
	for _, i := range []int{7, 3, 9, 1, 8, 2, 6} {
		b.settled(t, fmt.Sprint("many", i), fmt.Sprint("192.0.2.10", i), "172.17.0.2")
	}
	if got := b.where("172.17.0.2"); got != "NotFound: 172.17.0.2 is ambiguous: 7 nodes have this address: many1, many2, many3, many6, many7" {
		t.Error(got)
	}

	// When a node leaves, its stated addresses are removed.
	b.leave(n1)
	if got := b.where("192.0.2.1"); got != "liar" {
		t.Errorf("without n1: %s", got)
	}
	if got := b.where("10.0.0.1"); !strings.HasPrefix(got, "NotFound") {
		t.Errorf("without n1: %s", got)
	}
	b.settled(t, "liar", "192.0.2.3") // again, without statements
	if got := b.where("10.0.0.2"); got != "n2" {
		t.Errorf("without the wrong statement: %s", got)
	}
}

func TestWhatANodeMayState(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "default: 1")
	try := func(address string, hosts ...string) error {
		_, err := b.join(from{ctx: callFrom("192.0.2.1")}, &cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n", Address: address, Hosts: hosts}}, b.leadership.State().Epoch)
		return err
	}
	many := func(n int) (hosts []string) {
		for i := range n {
			hosts = append(hosts, fmt.Sprintf("10.0.1.%d", i))
		}
		return hosts
	}
	if err := try("[::]:9718", many(cluster.MaxHosts)...); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"too many hosts":  try("", many(cluster.MaxHosts+1)...),
		"loopback":        try("", "127.0.0.1"),
		"mapped loopback": try("", "::ffff:127.0.0.1"),
		"IPv6 loopback":   try("", "::1"),
		"multicast":       try("", "224.0.0.1"),
		"nowhere":         try("", "0.0.0.0"),
		"a name":          try("", "host"),
		"nothing":         try("", ""),
		"no port":         try("host"),
		"an empty port":   try("host:"),
		"a long address":  try(strings.Repeat("h", cluster.MaxName) + ":1"),
		"broadcast":       try("", "255.255.255.255"),
	} {
		if err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.nodesByAddress) != cluster.MaxHosts+1 || len(b.sessions) != 1 {
		t.Errorf("%d addresses of %d nodes", len(b.nodesByAddress), len(b.sessions))
	}
}

// TestOnlyNodesAskWhere: only reporting nodes may look up others; a certificate of the CA is not
// enough.
func TestOnlyNodesAskWhere(t *testing.T) {
	dir := t.TempDir()
	if _, err := certs.Make(dir, []string{"broker", "n1", "other"}, []string{"alice"}); err != nil {
		t.Fatal(err)
	}
	files := func(name string) cluster.Files {
		return cluster.Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
	}
	secure, err := files("broker").Server()
	if err != nil {
		t.Fatal(err)
	}
	b := serve(t, "127.0.0.1:0", "default: 1", grpc.Creds(credentials.NewTLS(secure)))
	ask := func(creds credentials.TransportCredentials) codes.Code {
		conn, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = cluster.NewNodesClient(conn).Where(t.Context(), &cluster.Host{Address: "192.0.2.1"})
		return status.Code(err)
	}
	with := func(name string) credentials.TransportCredentials {
		c, err := files(name).Client()
		if err != nil {
			t.Fatal(err)
		}
		return credentials.NewTLS(c)
	}
	if got := ask(with("n1")); got != codes.Unavailable {
		t.Errorf("a node that does not report yet: %v", got)
	}
	stream, err := dialWith(t, b.address, with("n1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n1", Hosts: []string{"192.0.2.1"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if got := ask(with("n1")); got != codes.OK {
		t.Errorf("a node that reports: %v", got)
	}
	for name, want := range map[string]codes.Code{"other": codes.Unavailable, "alice": codes.PermissionDenied} {
		if got := ask(with(name)); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := ask(insecure.NewCredentials()); got == codes.OK {
		t.Error("plain: answered")
	}
}

// FuzzPlaces: any location that a node states is refused, or the node is found only at addresses of
// machines.
func FuzzPlaces(f *testing.F) {
	f.Add("192.0.2.1", "0.0.0.0:9718")
	f.Add("fe80::1%eth0", "[::]:1")
	f.Add("::ffff:127.0.0.1", "x")
	f.Fuzz(func(t *testing.T, host, address string) {
		p, err := locationOf(callFrom("127.0.0.1"), &cluster.Node{Name: "n", Hosts: []string{host}, Address: address})
		if err != nil {
			return
		}
		if a := p.addresses(); len(a) != 1 || !machineAddress(a[0]) || a[0].Is4In6() || a[0].Zone() != "" || !slices.Equal(a, p.hosts) {
			t.Errorf("%q: %v", host, a)
		}
	})
}
