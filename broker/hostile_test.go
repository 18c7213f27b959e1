package broker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"penstock/broker/certs"
	"penstock/core/coord"
	"penstock/wire/cluster"
)

func sizeOf(t *testing.T, m proto.Message) int {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

// TestExpiredCertificate: a certificate of the CA is refused after it has expired.
func TestExpiredCertificate(t *testing.T) {
	dir := t.TempDir()
	if _, err := certs.Make(dir, []string{"broker"}, nil); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	pair, err := tls.X509KeyPair(read("ca.pem"), read("ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	try := func(until time.Time) error {
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "n"}, DNSNames: []string{"n"},
			NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca, &key.PublicKey, pair.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		secure, err := cluster.Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "broker.pem"), Key: filepath.Join(dir, "broker.key")}.Server()
		if err != nil {
			t.Fatal(err)
		}
		b := bounded(t, secure, 10)
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(read("ca.pem")) {
			t.Fatal("no authority")
		}
		keyText, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		own, err := tls.X509KeyPair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyText}))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := dialWith(t, b.address, credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13}))
		if err != nil {
			return err
		}
		_ = stream.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n"}}) // Recv returns the reason if it fails
		_, err = stream.Recv()
		return err
	}
	if err := try(time.Now().Add(time.Hour)); err != nil {
		t.Errorf("a good one: %v", err)
	}
	if err := try(time.Now().Add(-time.Hour)); status.Code(err) != codes.Unavailable {
		t.Errorf("an expired one: %v", err)
	}
}

// TestReplay: messages of a node are refused when another node sends them, on its own stream or
// interleaved. They do not affect the first node.
func TestReplay(t *testing.T) {
	secure, of := authority(t, "victim", "thief")
	b := bounded(t, secure, 10)
	stream := func(who string) cluster.Nodes_ExchangeClient {
		s, err := dialWith(t, b.address, of(who))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	say := func(s cluster.Nodes_ExchangeClient, r *cluster.Report) error {
		_ = s.Send(r) // Recv returns the reason if it fails
		_, err := s.Recv()
		return err
	}
	report := func(sequence, rate uint64) *cluster.Report {
		r := &cluster.Report{Sequence: sequence, Entries: []uint32{0}, Rates: []uint64{rate}, Rooms: []uint64{rate}}
		if sequence == 1 {
			r.Node, r.Names = &cluster.Node{Name: "victim"}, []*cluster.Name{{Entry: 0, Application: "a"}}
		}
		return r
	}
	total := func(want int64) {
		t.Helper()
		b.mu.Lock()
		defer b.mu.Unlock()
		if got, _ := b.totals.Of("a"); got.Rate != want {
			t.Errorf("the total is %d, want %d", got.Rate, want)
		}
	}
	recorded := []*cluster.Report{report(1, 100), report(2, 200), report(3, 300)}
	victim := stream("victim")
	for _, r := range recorded {
		if err := say(victim, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := say(stream("thief"), recorded[0]); status.Code(err) != codes.PermissionDenied {
		t.Errorf("under the thief's certificate: %v", err)
	}
	for _, r := range recorded[1:] {
		if err := say(stream("thief"), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("in the middle: %v", err)
		}
	}
	total(300)
	if err := say(victim, report(4, 400)); err != nil {
		t.Errorf("the victim after that: %v", err)
	}
	total(400)
	// Messages of the node's own earlier stream, as a network that recovers may deliver them.
	next := stream("victim")
	if err := say(next, report(1, 50)); err != nil {
		t.Fatal(err)
	}
	if err := say(victim, report(5, 500)); status.Code(err) != codes.Aborted {
		t.Errorf("a report of the stream before: %v", err)
	}
	total(50)
	if err := say(next, report(1, 50)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the same report again: %v", err)
	}
	eventually(t, "nothing of it counts", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.totals.Members() == 0
	})
}

// TestGreatestSums: the largest number of nodes can report the largest rates for one application,
// and the sums are right. One more node is refused.
func TestGreatestSums(t *testing.T) {
	totals := coord.NewTotals(maxNodes, maxApps, cluster.MaxEntries)
	var last coord.Member
	for i := range maxNodes {
		m, err := totals.Join()
		if err != nil {
			t.Fatalf("node %d: %v", i+1, err)
		}
		if _, err := totals.Name(m, 0, "a"); err != nil {
			t.Fatal(err)
		}
		if err := totals.Report(m, 0, coord.Service{Rate: coord.MaxRate, Room: coord.MaxRate}); err != nil {
			t.Fatal(err)
		}
		last = m
	}
	const all = int64(maxNodes) * coord.MaxRate
	if got, _ := totals.Of("a"); got.Rate != all || got.Room != all {
		t.Errorf("the total is %+v, want %d", got, all)
	}
	if _, err := totals.Join(); err != coord.ErrTooManyMembers {
		t.Errorf("one node more: %v", err)
	}
	if err := totals.Report(last, 0, coord.Service{Rate: coord.MaxRate + 1}); err != coord.ErrRate {
		t.Errorf("a nanosecond more: %v", err)
	}
	if err := totals.Leave(last); err != nil {
		t.Fatal(err)
	}
	if got, _ := totals.Of("a"); got.Rate != all-coord.MaxRate {
		t.Errorf("without one the total is %+v", got)
	}
}

// TestGreatestClaim: a node can report at most the service of 256 devices, divided in any way. A
// report beyond that ends the stream and removes the node from the totals.
func TestGreatestClaim(t *testing.T) {
	b := bounded(t, nil, 10)
	for over, want := range map[uint64]codes.Code{0: codes.OK, 1: codes.InvalidArgument} {
		s := dial(t, b.address)
		r := &cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "liar"}, Names: []*cluster.Name{{Entry: 0, Application: "a"}, {Entry: 1, Application: "b"}},
			Entries: []uint32{0, 1}, Rates: []uint64{coord.MaxRate - coord.Second, coord.Second + over}, Rooms: []uint64{0, 0}}
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); status.Code(err) != want {
			t.Errorf("%d more than all: %v", over, err)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its claim is gone with its stream", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.totals.Apps() == 0
		})
	}
}

// TestTooManyApplications: the last application that has room is accepted and the next one refused,
// and other nodes continue.
func TestTooManyApplications(t *testing.T) {
	b := bounded(t, nil, 100)
	names := func(node, count int) *cluster.Report {
		r := &cluster.Report{Sequence: 1, Node: &cluster.Node{Name: fmt.Sprint("n", node), PeriodMs: 30_000}}
		for i := range count {
			r.Names = append(r.Names, &cluster.Name{Entry: uint32(i), Application: fmt.Sprintf("a-%d-%d", node, i)})
		}
		return r
	}
	var first cluster.Nodes_ExchangeClient
	node := 0
	for left := maxApps; left > 0; node++ {
		n := min(left, cluster.MaxEntries)
		left -= n
		s := dial(t, b.address)
		if err := s.Send(names(node, n)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatalf("node %d: %v", node, err)
		}
		if first == nil {
			first = s
		}
	}
	s := dial(t, b.address)
	if err := s.Send(names(node, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "too many applications: the broker's limit") {
		t.Errorf("application %d: %v", maxApps+1, err)
	}
	if err := first.Send(&cluster.Report{Sequence: 2, Entries: []uint32{0}, Rates: []uint64{5}, Rooms: []uint64{5}}); err != nil {
		t.Fatal(err)
	}
	if a, err := first.Recv(); err != nil || len(a.GetRates()) != 1 || a.GetRates()[0] != 5 {
		t.Errorf("the first node after that: %v", err)
	}
}

// bare is a codec that sends bytes unchanged.
type bare struct{}

func (bare) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (bare) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}

func (bare) Name() string { return "proto" }

// TestNoText: a name or a message that is not UTF-8 ends the stream.
func TestNoText(t *testing.T) {
	b := bounded(t, nil, 10)
	name := []byte{0x08, 1, 0x12, 4, 0x0a, 2, 0xff, 0xfe} // sequence 1, a node's name
	good := []byte{0x08, 1, 0x12, 4, 0x0a, 2, 'o', 'k'}
	for what, test := range map[string]struct {
		text []byte
		code codes.Code
	}{"a good one": {good, codes.OK}, "a name": {name, codes.Internal}, "no message": {[]byte("\xff\xff\xff"), codes.Internal}} {
		conn, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		s, err := conn.NewStream(ctx, &cluster.Nodes_ServiceDesc.Streams[0], cluster.Nodes_Exchange_FullMethodName, grpc.ForceCodec(bare{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMsg(&test.text); err != nil {
			t.Fatal(err)
		}
		var answer []byte
		if err := s.RecvMsg(&answer); status.Code(err) != test.code {
			t.Errorf("%s: %v, want %v", what, err, test.code)
		}
		cancel()
		conn.Close()
	}
}
