package broker

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"penstock/broker/certs"
	"penstock/broker/leadership"
	"penstock/broker/store"
	"penstock/core/arbiter"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

func asOperator(t *testing.T, address string, creds credentials.TransportCredentials) cluster.OperatorsClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return cluster.NewOperatorsClient(conn)
}

func TestVersionsByOperators(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "default: 1")
	o := asOperator(t, b.address, insecure.NewCredentials())
	ctx := t.Context()
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	v, err := o.Apply(ctx, &cluster.ApplyRequest{Text: []byte("default: 2\n"), Base: 1, Note: "twice"})
	if err != nil || v.GetVersion() != 2 || v.GetAuthor() != who.Username || v.GetNote() != "twice" || time.Since(time.UnixMilli(v.GetUnixMs())) > time.Minute {
		t.Errorf("applied: %v, %v", v, err)
	}
	if v, err := o.Apply(ctx, &cluster.ApplyRequest{Text: []byte("default: 2\n")}); err != nil || v.GetVersion() != 2 {
		t.Errorf("the same again: %v, %v", v, err)
	}
	if v, err := o.SetWeight(ctx, &cluster.SetWeightRequest{Application: "a", Weight: 5, Force: true}); err != nil || v.GetVersion() != 3 || v.GetWeights()["a"] != 5 {
		t.Errorf("a weight: %v, %v", v, err)
	}
	if v, err := o.Apply(ctx, &cluster.ApplyRequest{Text: []byte("default: 3\n")}); err != nil || v.GetVersion() != 4 || v.GetWeights()["a"] != 5 {
		t.Errorf("a policy after it: %v, %v", v, err)
	}
	if v, err := o.SetWeight(ctx, &cluster.SetWeightRequest{Application: "a"}); err != nil || v.GetVersion() != 5 || len(v.GetWeights()) != 0 {
		t.Errorf("after unset-weight: %v, %v", v, err)
	}
	for what, test := range map[string]struct {
		err  error
		code codes.Code
		want string
	}{
		"another base":     {second(o.Apply(ctx, &cluster.ApplyRequest{Text: []byte("default: 4"), Base: 3})), codes.Aborted, "version 5 is in force"},
		"a mistake":        {second(o.Apply(ctx, &cluster.ApplyRequest{Text: []byte("default: 1\nrules:\n- {weight: 0}\n")})), codes.InvalidArgument, "line 3, column 4: rules[0]: weight 0"},
		"empty":            {second(o.Apply(ctx, &cluster.ApplyRequest{})), codes.InvalidArgument, "empty"},
		"too large":        {second(o.Apply(ctx, &cluster.ApplyRequest{Text: make([]byte, store.MaxText+1)})), codes.InvalidArgument, "at most 1048576"},
		"a long note":      {second(o.Apply(ctx, &cluster.ApplyRequest{Text: []byte("default: 4"), Note: strings.Repeat("x", store.MaxNote+1)})), codes.InvalidArgument, "note"},
		"not UTF-8":        {second(o.Apply(ctx, &cluster.ApplyRequest{Text: []byte("# \xff\ndefault: 4")})), codes.InvalidArgument, "UTF-8"},
		"no such version":  {second(o.Policy(ctx, &cluster.PolicyRequest{Version: 99})), codes.NotFound, "no such version"},
		"long history":     {second(o.History(ctx, &cluster.HistoryRequest{Limit: store.Keep + 1})), codes.InvalidArgument, "1 to 1000"},
		"no application":   {second(o.SetWeight(ctx, &cluster.SetWeightRequest{Weight: 1})), codes.InvalidArgument, "1 to 256 bytes"},
		"too heavy":        {second(o.SetWeight(ctx, &cluster.SetWeightRequest{Application: "a", Weight: policy.MaxWeight + 1})), codes.InvalidArgument, "use 1 to"},
		"unknown":          {second(o.SetWeight(ctx, &cluster.SetWeightRequest{Application: "c", Weight: 2})), codes.NotFound, "unknown application: c is not at work"},
		"never set":        {second(o.SetWeight(ctx, &cluster.SetWeightRequest{Application: "b"})), codes.NotFound, "b has no weight set"},
		"a long name":      {second(o.SetWeight(ctx, &cluster.SetWeightRequest{Application: strings.Repeat("x", 257), Weight: 1})), codes.InvalidArgument, "1 to 256 bytes"},
		"none of the good": {second(o.Policy(ctx, &cluster.PolicyRequest{})), codes.OK, ""},
	} {
		if status.Code(test.err) != test.code || !strings.Contains(status.Convert(test.err).Message(), test.want) {
			t.Errorf("%s: %v, want %v: %s", what, test.err, test.code, test.want)
		}
	}
	h, err := o.History(ctx, &cluster.HistoryRequest{Limit: 3})
	if err != nil || len(h.GetVersions()) != 3 || h.GetVersions()[0].GetVersion() != 5 || len(h.GetVersions()[1].GetText()) != 0 {
		t.Errorf("the history: %v, %v", h, err)
	}
	if v, err := o.Policy(ctx, &cluster.PolicyRequest{Version: 2}); err != nil || string(v.GetText()) != "default: 2\n" {
		t.Errorf("version 2: %v, %v", v, err)
	}
}

// second is the error of a call.
func second[T any](_ T, err error) error { return err }

// TestWhoIsAnOperator: with certificates, only operators may call the service.
func TestWhoIsAnOperator(t *testing.T) {
	dir := t.TempDir()
	if _, err := certs.Make(dir, []string{"broker", "n1"}, []string{"alice"}); err != nil {
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
	as := func(name string) cluster.OperatorsClient {
		c, err := files(name).Client()
		if err != nil {
			t.Fatal(err)
		}
		return asOperator(t, b.address, credentials.NewTLS(c))
	}
	if v, err := as("alice").Apply(t.Context(), &cluster.ApplyRequest{Text: []byte("default: 2")}); err != nil || v.GetAuthor() != "alice" {
		t.Errorf("an operator: %v, %v", v, err)
	}
	node := as("n1")
	for what, err := range map[string]error{
		"Policy":           second(node.Policy(t.Context(), &cluster.PolicyRequest{})),
		"History":          second(node.History(t.Context(), &cluster.HistoryRequest{})),
		"Apply":            second(node.Apply(t.Context(), &cluster.ApplyRequest{Text: []byte("default: 2")})),
		"SetWeight":        second(node.SetWeight(t.Context(), &cluster.SetWeightRequest{Application: "a", Weight: 1, Force: true})),
		"ListNodes":        second(node.ListNodes(t.Context(), &cluster.ListNodesRequest{})),
		"ListApplications": second(node.ListApplications(t.Context(), &cluster.ListApplicationsRequest{})),
	} {
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "certs --operator") {
			t.Errorf("%s by a node: %v", what, err)
		}
	}
	if _, err := asOperator(t, b.address, insecure.NewCredentials()).Policy(t.Context(), &cluster.PolicyRequest{}); err == nil {
		t.Error("plain: heard")
	}
}

func TestLocalUser(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		who, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		end := netip.MustParseAddrPort(c.LocalAddr().String())
		if got, uid := localUser("/proc/net", end); got != who.Username || uid != who.Uid {
			t.Errorf("%s: %q %q, want %q %q", end, got, uid, who.Username, who.Uid)
		}
		if got, uid := localUser(t.TempDir(), end); got != "" || uid != "" {
			t.Errorf("without a table: %q %q", got, uid)
		}
	}
	dir := t.TempDir()
	table := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		" x: junk\n   0: 0100007F:0539 0100007F:25F5 01 00000000:00000000 00:00000000 00000000 4294901760        0 1 1\n"
	if err := os.WriteFile(filepath.Join(dir, "tcp"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := localUser(dir, netip.MustParseAddrPort("127.0.0.1:1337")); got != "uid 4294901760" {
		t.Errorf("a user without a name: %q", got)
	}
}

// TestListSettling: after a change of leadership, operators see that nodes may be missing, from the
// first moment on.
func TestListSettling(t *testing.T) {
	offices, addresses := several(t, 1)
	o := asOperator(t, addresses[0], insecure.NewCredentials())
	for epoch := uint64(1); epoch < 20; epoch++ {
		offices[0].set(leadership.State{Leading: true, Epoch: epoch})
		if n, err := o.ListNodes(t.Context(), &cluster.ListNodesRequest{}); err != nil || !n.GetSettling() || n.GetEpoch() != epoch {
			t.Errorf("epoch %d: %v, %v", epoch, n, err)
		}
	}
}

// TestWhatOperatorsSee: nodes, and applications with their service and entitlements.
func TestWhatOperatorsSee(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "rules: [{flow: c, weight: 2}, {flow: 'sys*', weight: 1, group: system}]")
	nodes := []*machine{node(t, "one", []string{b.address}, "a", "sys1", "sys2"), node(t, "two", []string{b.address}, "a", "c")}
	o := asOperator(t, b.address, insecure.NewCredentials())
	var n *cluster.ListNodesAnswer
	eventually(t, "both nodes have the policy", func() bool {
		var err error
		if n, err = o.ListNodes(t.Context(), &cluster.ListNodesRequest{}); err != nil {
			t.Fatal(err)
		}
		return len(n.GetNodes()) == 2 && !n.GetSettling() && n.GetNodes()[0].GetPolicy() == 1 && n.GetNodes()[1].GetPolicy() == 1 &&
			n.GetNodes()[0].GetRate() > 0 && n.GetNodes()[1].GetApplications() == 2
	})
	if n.GetNodes()[0].GetNode().GetName() != "one" || n.GetNodes()[0].GetApplications() != 3 || time.Since(time.UnixMilli(n.GetNodes()[0].GetHeardUnixMs())) > time.Minute {
		t.Errorf("%v", n)
	}
	eventually(t, "all applications are served", func() bool {
		a, err := o.ListApplications(t.Context(), &cluster.ListApplicationsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(a.GetApplications()) == 4 && !slices.ContainsFunc(a.GetApplications(), func(s *cluster.ApplicationState) bool { return s.GetRate() == 0 })
	})
	if _, err := o.SetWeight(t.Context(), &cluster.SetWeightRequest{Application: "a", Weight: 4, Force: true}); err != nil {
		t.Fatal(err)
	}
	a, err := o.ListApplications(t.Context(), &cluster.ListApplicationsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	share := 0.0
	for i, want := range []*cluster.ApplicationState{
		{Application: "a", Nodes: 2, Weight: 4, Due: 4. / 7, Rule: -1},
		{Application: "c", Nodes: 1, Weight: 2, Due: 2. / 7, Rule: 0},
		{Application: "sys1", Nodes: 1, Weight: 0.5, Due: 0.5 / 7, Rule: 1, Group: "system"},
		{Application: "sys2", Nodes: 1, Weight: 0.5, Due: 0.5 / 7, Rule: 1, Group: "system"},
	} {
		got := a.GetApplications()[i]
		share += got.GetShare()
		if got.GetApplication() != want.Application || got.GetNodes() != want.Nodes || got.GetWeight() != want.Weight || math.Abs(got.GetDue()-want.Due) > 1e-9 ||
			got.GetRule() != want.Rule || got.GetGroup() != want.Group {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if math.Abs(share-1) > 1e-9 {
		t.Errorf("shares come to %v", share)
	}
	if one, err := o.ListApplications(t.Context(), &cluster.ListApplicationsRequest{Application: "c"}); err != nil || len(one.GetApplications()) != 1 || one.GetApplications()[0].GetDue() != 2./7 {
		t.Errorf("one: %v, %v", one, err)
	}
	nodes[0].stopped()
}

// TestLiveOnAllNodes: a version is soon in force at all nodes. The test logs how soon.
func TestLiveOnAllNodes(t *testing.T) {
	const count = 20
	b := serve(t, "127.0.0.1:0", "default: 1")
	o := asOperator(t, b.address, insecure.NewCredentials())
	var nodes []*machine
	for i := range count {
		nodes = append(nodes, nodeEvery(t, fmt.Sprint("node-", i), []string{b.address}, time.Second, "a", fmt.Sprint("app-", i)))
	}
	live := func(version uint64, weight float64) func() bool {
		return func() bool {
			return !slices.ContainsFunc(nodes, func(m *machine) bool {
				return m.client.State().Policy != version || m.right("a").Weight != weight
			})
		}
	}
	eventually(t, "all nodes report", live(1, 1))
	for _, weight := range []uint32{3, 8, 5} {
		begin := time.Now()
		v, err := o.Apply(t.Context(), &cluster.ApplyRequest{Text: fmt.Appendf(nil, "rules: [{flow: a, weight: %d}]", weight)})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the version is in force at all nodes", live(v.GetVersion(), float64(weight)))
		t.Logf("version %d: in force at %d nodes %v after it was applied (period of reports 1s)", v.GetVersion(), count, time.Since(begin).Round(time.Millisecond))
	}
	for _, on := range []bool{true, false, true} {
		begin, want := time.Now(), map[bool]arbiter.Mode{true: arbiter.Off, false: arbiter.Enforce}[on]
		if _, err := o.KillSwitch(t.Context(), &cluster.KillSwitchRequest{On: on}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the kill switch reaches all nodes", func() bool {
			return !slices.ContainsFunc(nodes, func(m *machine) bool { return m.client.State().Bound != want })
		})
		t.Logf("kill switch on %v: in force at %d nodes after %v", on, count, time.Since(begin).Round(time.Millisecond))
	}
}

// TestPolicyFile: a file becomes a version when it changes, but not when the broker restarts.
func TestPolicyFile(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "policy.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start := func() (*Broker, *store.File) {
		t.Helper()
		kept, err := store.OpenFile(dir)
		if err != nil {
			t.Fatal(err)
		}
		b, err := New(t.Context(), Options{Store: kept})
		if err != nil {
			t.Fatal(err)
		}
		return b, kept
	}
	take := func(b *Broker, version uint64, weight int) {
		t.Helper()
		if err := b.ApplyFile(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		if b.version != version || b.policy.Default != weight {
			t.Errorf("version %d with %d, want %d with %d", b.version, b.policy.Default, version, weight)
		}
	}
	write("default: 2\n")
	b, kept := start()
	take(b, 1, 2)
	take(b, 1, 2)
	applyText(t, b, "default: 3\n")
	take(b, 2, 3)
	kept.Close()
	b, kept = start()
	take(b, 2, 3)
	write("default: 0\n")
	if err := b.ApplyFile(t.Context(), file); err == nil || !strings.Contains(err.Error(), "line 1, column 1: default") || b.version != 2 {
		t.Errorf("a bad file: %v, version %d", err, b.version)
	}
	write("default: 4\n")
	take(b, 3, 4)
	write("default: 2\n")
	take(b, 4, 2)
	kept.Close()
}

// TestWeightRetention: the next version drops the weights of applications that have not been at
// work for long.
func TestWeightRetention(t *testing.T) {
	b, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	set := func(name string) {
		t.Helper()
		if _, err := b.write(t.Context(), 0, "test", func(v *store.Version) error { v.Weights[name] = 2; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	set("here")
	set("gone")
	m, err := b.totals.Join()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.totals.Name(m, 0, "here"); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-weightRetention - time.Hour)
	b.lastActive["here"], b.lastActive["gone"] = past, past
	b.noteActivity(time.Now())
	set("new")
	if w := b.policy.Set; len(w) != 2 || w["here"] != 2 || w["new"] != 2 || len(b.lastActive) != 2 {
		t.Errorf("%v, %v", w, b.lastActive)
	}
}

// TestManySetWeights: beyond the limit, the error contains the remedy.
func TestManySetWeights(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "default: 1")
	if _, err := b.write(t.Context(), 0, "test", func(v *store.Version) error {
		for i := range store.MaxWeights {
			v.Weights[fmt.Sprint("app-", i)] = 1
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	o := asOperator(t, b.address, insecure.NewCredentials())
	if _, err := o.SetWeight(t.Context(), &cluster.SetWeightRequest{Application: "one more", Weight: 1, Force: true}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "10000 applications") {
		t.Error(err)
	}
	if _, err := o.SetWeight(t.Context(), &cluster.SetWeightRequest{Application: "app-7", Weight: 3, Force: true}); err != nil {
		t.Error(err)
	}
}

// TestOtherBrokersVersion: a version that another broker writes comes into force. A version that
// this program cannot read does not.
func TestOtherBrokersVersion(t *testing.T) {
	shared := store.NewMemory()
	b, err := New(t.Context(), Options{Store: shared})
	if err != nil {
		t.Fatal(err)
	}
	go b.Run(t.Context())
	version := func() uint64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.version
	}
	if err := shared.Append(t.Context(), store.Version{Number: 1, Text: []byte("default: 9")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "version 1", func() bool { return version() == 1 })
	if err := shared.Append(t.Context(), store.Version{Number: 2, Text: []byte("of the future: 1")}); err != nil {
		t.Fatal(err)
	}
	if err := b.refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "read version 2 of the policy") {
		t.Error(err)
	}
	if version() != 1 {
		t.Error("the bad version is in force")
	}
	if err := shared.Append(t.Context(), store.Version{Number: 3, Text: []byte("default: 8")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "version 3", func() bool { return version() == 3 })
	if _, err := New(t.Context(), Options{Store: bad(t)}); err == nil {
		t.Error("a broker starts with a policy that it cannot read")
	}
}

func bad(t *testing.T) store.Store {
	s := store.NewMemory()
	if err := s.Append(t.Context(), store.Version{Number: 1, Text: []byte("of the future: 1")}); err != nil {
		t.Fatal(err)
	}
	return s
}
