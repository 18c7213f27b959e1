package node

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"penstock/wire"
)

// connection is a TCP connection within this process, which is in no container: its
// two ends as a DataNode sees them.
func connection(t *testing.T) (client, server string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return c.LocalAddr().String(), l.Addr().String()
}

// A process outside of every container says that it is an application.
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
			client, server := connection(t)
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
			// A shell is what it says.
			r.send(wire.Open{Stream: 2, Direction: wire.Write, Flow: "clients", Path: block, Client: client, Server: server})
			r.until("the shell's flow", func() bool { return streams("clients") == "1" })
		})
	}
}

// A task's process is looked at when it connects.
func TestATaskThatIsNone(t *testing.T) {
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\nidentity: {mode: verify}\n")
	local := filepath.Join(filepath.Dir(r.dir), "local")
	if err := os.MkdirAll(local+"/nmPrivate", 0o755); err != nil {
		t.Fatal(err)
	}
	task := r.another(wire.Hello{Role: wire.RoleTask, Flow: app, Directories: []string{local}})
	path := local + "/spill0.out"
	task.put(path, "")
	task.send(openOf(1, wire.Write, wire.Intermediate, path, 0))
	task.until("a lease", func() bool { return task.marks[1] > 0 })
	if got := r.metric(fmt.Sprintf(`penstock_flow_streams{device=%q,flow="unattributed"}`, r.deviceName())); got != "1" {
		t.Errorf("unattributed has %s streams", got)
	}
}

// Whoever connects is greeted in time, however long a look at his process takes.
func TestAnIntroductionEnds(t *testing.T) {
	for took, want := range map[time.Duration]int{introduction - 1: 7, introduction + 1: 0, time.Hour: 0} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			got := soon(introduction, func() int { time.Sleep(took); return 7 })
			if waited := time.Since(begin); got != want || waited > introduction {
				t.Errorf("a look of %v: %d after %v", took, got, waited)
			}
			time.Sleep(took) // for the look to end
		})
	}
}
