package node

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/node/blockfile"
	"penstock/node/config"
	"penstock/node/identity"
	"penstock/wire"
)

// connection returns the two ends of a TCP connection within this process, which is in no
// container, as a DataNode sees them.
func connection(t *testing.T) (client, server string) {
	t.Helper()
	c, server := dial(t)
	return c.LocalAddr().String(), server
}

func dial(t *testing.T) (c *net.TCPConn, server string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c = conn.(*net.TCPConn)
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return c, l.Addr().String()
}

// elsewhere returns a connection. Another process of this user has the client's end.
func elsewhere(t *testing.T) (client, server string) {
	t.Helper()
	c, server := dial(t)
	client = c.LocalAddr().String()
	f, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	child := exec.Command("sleep", "600")
	child.ExtraFiles = []*os.File{f}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	c.Close()
	return client, server
}

// A process outside of every container claims to be an application.
func TestAForgedClaim(t *testing.T) {
	for _, c := range []struct{ mode, begins, ends string }{
		{"trust", app, app},
		{"verify", app, "unattributed"},
		{"strict", "unattributed", "unattributed"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			r := startWith(t, "enforce", fmt.Sprintf("local_dirs: [ROOT/local]\nidentity: {mode: %s}\n", c.mode))
			if err := os.MkdirAll(filepath.Join(filepath.Dir(r.dir), "local", "nmPrivate"), 0o755); err != nil {
				t.Fatal(err)
			}
			client, server := elsewhere(t)
			block := filepath.Join(r.dir, "blk_1")
			r.put(block, "")
			r.send(wire.Open{Stream: 1, Direction: wire.Write, Flow: app, Path: block, Client: client, Server: server})
			streams := func(flow string) string {
				return r.metric(fmt.Sprintf("penstock_flow_streams{device=%q,flow=%q}", r.deviceName(), flow))
			}
			r.until("a lease", func() bool { return r.marks[1] > 0 })
			r.until("its flow", func() bool { return streams(c.ends) == "1" })
			if c.begins != c.ends && streams(c.begins) != "0" {
				t.Errorf("%s streams are still of %s", streams(c.begins), c.begins)
			}
			if c.mode != "trust" {
				r.until("the verdict", func() bool {
					return r.metric(`penstock_identity_claims_total{evidence="outside",outcome="refuted"}`) == "1"
				})
				if got := streams(c.ends); got != "1" {
					t.Errorf("%s streams of %s after the verdict", got, c.ends)
				}
			}
			// A shell's claim is true.
			r.send(wire.Open{Stream: 2, Direction: wire.Write, Flow: "clients", Path: block, Client: client, Server: server})
			r.until("the shell's flow", func() bool { return streams("clients") == "1" })
		})
	}
}

// A task's process is examined when it connects. No DataNode is connected: it would be this same
// process, and the daemon does not refute what a registered server claims.
func TestATaskThatIsNone(t *testing.T) {
	task := launch(t, "enforce", "local_dirs: [ROOT/local]\nidentity: {mode: verify}\n")
	local := filepath.Join(filepath.Dir(task.dir), "local")
	if err := os.MkdirAll(local+"/nmPrivate", 0o755); err != nil {
		t.Fatal(err)
	}
	task.connect(wire.Hello{Role: wire.RoleTask, Flow: app, Directories: []string{local}})
	path := local + "/spill0.out"
	task.put(path, "")
	task.send(openOf(1, wire.Write, wire.Intermediate, path, 0))
	task.until("a lease", func() bool { return task.marks[1] > 0 })
	if got := task.metric(fmt.Sprintf(`penstock_flow_streams{device=%q,flow="unattributed"}`, task.deviceName())); got != "1" {
		t.Errorf("unattributed has %s streams", got)
	}
}

// A process that connects gets its welcome in time, however long its examination takes.
func TestAnIntroductionEnds(t *testing.T) {
	for took, want := range map[time.Duration]int{introduction - 1: 7, introduction + 1: 0, time.Hour: 0} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			got := within(introduction, func() int { time.Sleep(took); return 7 })
			if waited := time.Since(begin); got != want || waited > introduction {
				t.Errorf("a look of %v: %d after %v", took, got, waited)
			}
			time.Sleep(took) // until the examination ends
		})
	}
}

// The DataNode's own operations count because its agent reports them as its own, not because no
// peer is known: a domain socket has no address either.
func TestADomainSocketIsNotTheDataNodesOwn(t *testing.T) {
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\nidentity: {mode: strict}\n")
	block := filepath.Join(r.dir, "blk_1")
	r.put(block, "")
	streams := func(flow string) string {
		return r.metric(fmt.Sprintf("penstock_flow_streams{device=%q,flow=%q}", r.deviceName(), flow))
	}
	for i, flow := range []string{"replication", "balancer", "scanner", app} {
		r.send(wire.Open{Stream: uint32(i + 1), Direction: wire.Write, Flow: flow, Path: block})
		r.until("a lease", func() bool { return r.marks[uint32(i+1)] > 0 })
		if got, want := streams("unattributed"), fmt.Sprint(i+1); got != want {
			t.Errorf("%s of nobody: %s unattributed streams, want %s", flow, got, want)
		}
	}
	r.send(wire.Open{Stream: 9, Direction: wire.Write, Flow: "scanner", Path: block, Client: wire.Own})
	r.until("a lease", func() bool { return r.marks[9] > 0 })
	if got := streams("scanner"); got != "1" {
		t.Errorf("%s streams of the DataNode's own scanner", got)
	}
}

// A process that registers a directory from the settings' list, and does not own it, does not run
// as a DataNode's user.
func TestADataNodesUserOwnsItsDirectories(t *testing.T) {
	path := t.TempDir()
	dir, err := blockfile.OpenDir(path, sysfs)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	me := uint32(os.Geteuid())
	r := registration{dirs: []registered{{directory: directory{Dir: dir}}}}
	if !r.ownsAll(me) || r.ownsAll(me+1) || (&registration{}).ownsAll(me) {
		t.Error("ownsAll is wrong")
	}
}

// A balancer has no agent: it is recognised by its user, which is one of the services in the
// settings, or the DataNode's.
func TestABalancerIsKnownByItsUser(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		services string
		datanode bool // a DataNode runs as this user
		want     string
	}{
		"no service":         {"", false, "refuted account"},
		"others' services":   {"no-such-user, '4294967290'", false, "refuted account"},
		"by name":            {"no-such-user, " + me.Username, false, "confirmed account"},
		"as a principal":     {me.Username + "/host@REALM", false, "confirmed account"},
		"by number":          {"'" + me.Uid + "'", false, "confirmed account"},
		"the DataNode's own": {"", true, "confirmed account"},
	} {
		t.Run(name, func(t *testing.T) {
			more := fmt.Sprintf("local_dirs: [ROOT/local]\nidentity: {mode: strict, services: [%s]}\n", c.services)
			root := t.TempDir()
			var d *Daemon
			if c.datanode {
				r := startWith(t, "enforce", more)
				d, root = r.daemon, filepath.Dir(r.dir)
				r.until("a welcome", func() bool { return r.mode == wire.ModeEnforce })
			} else {
				file := filepath.Join(root, "node.yaml")
				if err := os.WriteFile(file, []byte("socket: s\nlisten: off\n"+strings.ReplaceAll(more, "ROOT", root)), 0o600); err != nil {
					t.Fatal(err)
				}
				n, err := config.LoadNode(file)
				if err != nil {
					t.Fatal(err)
				}
				if d, err = New(n, slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(d.identity.Close)
			}
			if err := os.MkdirAll(filepath.Join(root, "local", "nmPrivate"), 0o755); err != nil {
				t.Fatal(err)
			}
			client, server := elsewhere(t)
			answer := make(chan identity.Verdict, 1)
			v, known := d.identity.Check(identity.Claim{Flow: "balancer", Client: client, Server: server},
				func(v identity.Verdict) { answer <- v })
			if !known {
				select {
				case v = <-answer:
				case <-time.After(time.Minute):
					t.Fatal("no answer")
				}
			}
			if got := v.State.String() + " " + v.Evidence.String(); got != c.want {
				t.Errorf("%s (%s), want %s", got, v.Detail, c.want)
			}
		})
	}
}

// A client in no container that matches a rule of the weights file has the flow of its service, in which users take no turns.
// The rules are replaced while the daemon runs; a file with a mistake changes nothing.
func TestNamedServices(t *testing.T) {
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\nidentity: {mode: strict}\n")
	if err := os.MkdirAll(filepath.Join(filepath.Dir(r.dir), "local", "nmPrivate"), 0o755); err != nil {
		t.Fatal(err)
	}
	block := filepath.Join(r.dir, "blk_1")
	r.put(block, "")
	client, server := elsewhere(t) // the program sleep
	streams := func(flow string) string {
		return r.metric(fmt.Sprintf("penstock_flow_streams{device=%q,flow=%q}", r.deviceName(), flow))
	}
	stream := uint32(0)
	open := func(flow, want string) {
		t.Helper()
		before := streams(want)
		stream++
		r.send(wire.Open{Stream: stream, Direction: wire.Write, Flow: flow, Path: block, Client: client, Server: server})
		r.until("the flow "+want, func() bool { return streams(want) != before && streams(want) != "" })
	}
	loaded := 0
	load := func(text string) {
		t.Helper()
		r.put(r.weights, "default: 1\n"+text)
		loaded++
		r.until("the weights", func() bool { s := r.status().Weights; return int(s.Taken+s.Refused) == loaded })
	}
	open("clients", "clients")
	load(fmt.Sprintf("services: [{name: sleeper, user: %q, program: 'sle*p'}]\n", self.Username))
	open("clients", "service:sleeper")
	if s := r.status().Identity.Services; len(s) != 1 || s[0].Flow != "service:sleeper" || s[0].User != self.Username || s[0].Program != "sle*p" || s[0].Client != "" {
		t.Errorf("the status has %+v", s)
	}
	load("services: [{name: sleeper}]\n")
	open("client:hb_rs_1", "service:sleeper")
	load(fmt.Sprintf("services: [{name: awake, user: %q, client: 'hb_rs_*'}, {name: asleep, user: %q, program: sleep}]\n", self.Username, self.Username))
	open("client:hb_rs_1", "service:awake")
	open("client:hb_rx_1", "service:asleep")
	open("unattributed", "service:asleep")
	// No process gets such a flow by naming it, or by a name that no rule has.
	open("service:awake", "unattributed")
	load("")
	open("client:hb_rs_1", "unattributed")
	for _, s := range []string{"service:hb_rs_1", "client:hb_rs_1", "client:hb_rx_1"} {
		if got := streams(s); got != "" && got != "0" {
			t.Errorf("%s streams of %s", got, s)
		}
	}
}

// A block that a DataNode forwards has the flow that was verified at the first DataNode, whatever that DataNode's client claims.
func TestForwardedBlocks(t *testing.T) {
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\nidentity: {mode: verify}\n")
	if err := os.MkdirAll(filepath.Join(filepath.Dir(r.dir), "local", "nmPrivate"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.put(r.weights, fmt.Sprintf("services: [{name: sleeper, user: %q, program: sleep}]\n", self.Username))
	r.until("the rule", func() bool { return len(r.status().Identity.Services) == 1 })
	second := filepath.Join(r.dir, "second")
	if err := os.Mkdir(second, 0o755); err != nil {
		t.Fatal(err)
	}
	next := r.another(wire.Hello{Role: wire.RoleDataNode, Directories: []string{r.dir}})
	client, server := elsewhere(t)
	forwards, to := connection(t) // of this process, which is the DataNode
	streams := func(flow string) string {
		return r.metric(fmt.Sprintf("penstock_flow_streams{device=%q,flow=%q}", r.deviceName(), flow))
	}
	for i, claimed := range []string{"clients", app} {
		block := fmt.Sprintf("blk_%d", i)
		r.put(filepath.Join(r.dir, block), "")
		r.put(filepath.Join(second, block), "")
		r.send(wire.Open{Stream: uint32(i + 1), Direction: wire.Write, Flow: claimed, Path: filepath.Join(r.dir, block), Client: client, Server: server})
		r.until("the service at the first DataNode", func() bool { return streams("service:sleeper") == fmt.Sprint(2*i+1) })
		next.send(wire.Open{Stream: uint32(i + 1), Direction: wire.Write, Flow: claimed, Path: filepath.Join(second, block), Client: forwards, Server: to})
		next.until("the service at the second DataNode", func() bool { return streams("service:sleeper") == fmt.Sprint(2*i+2) })
	}
	// Once the first DataNode has ended the block, nothing is known of it.
	for i := range 2 {
		r.send(wire.Close{Stream: uint32(i + 1)})
	}
	r.until("the end of the blocks", func() bool { return streams("service:sleeper") == "2" })
	flow, user := r.daemon.written.verified(t.Context(), os.Getpid(), "blk_0", 0)
	if flow != "" || user != "" || len(r.daemon.written.of) != 0 {
		t.Errorf("%s, %s, %d blocks", flow, user, len(r.daemon.written.of))
	}
}

// A question about a block waits for the verdict, but not for longer than the caller wants.
func TestWrittenBlocks(t *testing.T) {
	var b writtenBlocks
	if w := b.begin(7, ""); w != nil {
		t.Error("a stream without a block")
	}
	synctest.Test(t, func(t *testing.T) {
		late := b.begin(7, "blk_1")
		defer late.end()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if flow, _ := b.verified(ctx, 7, "blk_1", late.number); flow != "" || ctx.Err() != nil {
			t.Errorf("%q, %v: a writer waits for itself", flow, ctx.Err())
		}
		if flow, _ := b.verified(ctx, 7, "blk_1", 0); flow != "" || ctx.Err() == nil {
			t.Errorf("%q before the verdict", flow)
		}
	})
	first, second := b.begin(7, "blk_1"), b.begin(7, "blk_1")
	second.settle(identity.Verify, "clients", identity.Verdict{State: identity.Confirmed, Flow: "clients", User: "bob"})
	second.end()
	first.settle(identity.Verify, "clients", identity.Verdict{State: identity.Confirmed, Flow: "clients", User: "ann"})
	if flow, user := b.verified(t.Context(), 7, "blk_1", 0); flow != "clients" || user != "ann" {
		t.Errorf("%s, %s", flow, user)
	}
	if flow, _ := b.verified(t.Context(), 8, "blk_1", 0); flow != "" {
		t.Errorf("another process's block: %s", flow)
	}
	first.end()
	unsure := b.begin(7, "blk_1")
	unsure.settle(identity.Verify, app, identity.Verdict{})
	if flow, _ := b.verified(t.Context(), 7, "blk_1", 0); flow != "" {
		t.Errorf("an unverified claim: %s", flow)
	}
	unsure.end()
}
