package identity

import (
	"testing"

	"pgregory.net/rapid"
)

func in(app string, e Evidence) facts {
	return facts{known: true, peer: Peer{PID: 7, UID: 1000, Application: app, Container: "c", Evidence: e}}
}

func outside(uid uint32) facts {
	return facts{known: true, peer: Peer{PID: 7, UID: uid, Outside: true}}
}

func (f facts) token(user, owner string) facts {
	f.tokenUser, f.owner = user, owner
	return f
}

func (f facts) forwards(flow, user string) facts {
	f.peer.Flow, f.peer.FlowUser = flow, user
	return f
}

func (f facts) service(names ...string) facts {
	f.services, f.serviceUIDs = names, map[uint32]bool{50: true}
	return f
}

var (
	aServer = facts{known: true, peer: Peer{PID: 7, UID: 50, Outside: true, Server: true}}
	anyone  = facts{why: "nobody knows"}
	own     = facts{own: true}
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name, flow string
		f          facts
		state      State
		is         string // the flow that the evidence names
		verify     string // the stream's flow, in mode verify and in mode strict
		strict     string
	}{
		{"by cgroup", appA, in(appA, Cgroup), Confirmed, appA, appA, appA},
		{"by session", appA, in(appA, Session), Confirmed, appA, appA, appA},
		{"by directory", appA, in(appA, Directory), Confirmed, appA, appA, appA},
		{"environment only", appA, in(appA, Environment), Unknown, "", appA, Unattributed},
		{"environment and token", appA, in(appA, Environment).token("ann", "ann"), Confirmed, appA, appA, appA},
		{"another's cgroup", appA, in(appB, Cgroup), Refuted, appB, appB, appB},
		{"another's session", appA, in(appB, Session), Refuted, appB, Unattributed, Unattributed},
		{"another's environment", appA, in(appB, Environment), Refuted, appB, Unattributed, Unattributed},
		{"a shell that forges", appA, outside(1000), Refuted, "clients", Unattributed, Unattributed},
		{"with its own token", appA, outside(1000).token("ann", "ann"), Refuted, "clients", Unattributed, Unattributed},
		{"nobody knows", appA, anyone, Unknown, "", appA, Unattributed},
		{"its user's token", appA, anyone.token("ann", "ann"), Confirmed, appA, appA, appA},
		{"another user's token", appA, anyone.token("bob", "ann"), Refuted, "", Unattributed, Unattributed},
		{"whose application?", appA, anyone.token("bob", ""), Unknown, "", appA, Unattributed},
		{"the container with another's token", appA, in(appA, Session).token("bob", "ann"), Confirmed, appA, appA, appA},
		{"by way of a DataNode", appA, aServer, Unknown, "", appA, Unattributed},
		{"by way of a DataNode, with its user's token", appA, aServer.token("ann", "ann"), Confirmed, appA, appA, appA},
		{"by way of a DataNode, with another's token", appA, aServer.token("bob", "ann"), Refuted, "", Unattributed, Unattributed},
		{"verified by the first DataNode", appA, aServer.forwards(appA, ""), Confirmed, appA, appA, appA},
		{"corrected by the first DataNode", clients, aServer.forwards(appA, ""), Corrected, appA, appA, appA},
		{"refuted by the first DataNode", appA, aServer.forwards(Unattributed, ""), Refuted, Unattributed, Unattributed, Unattributed},
		{"a service, by the first DataNode", clients, aServer.forwards("service:hbase", ""), Corrected, "service:hbase", "service:hbase", "service:hbase"},
		{"a user's, by the first DataNode", clients, aServer.forwards(clients, "ann"), Confirmed, clients, clients, clients},
		{"replication is no client's", "replication", aServer.forwards(appA, ""), Confirmed, "replication", "replication", "replication"},
		{"what no server forwards", appA, outside(1000).forwards(appA, ""), Refuted, "clients", Unattributed, Unattributed},
		{"Spark standalone", spark, in(spark, Directory), Confirmed, spark, spark, spark},

		{"a shell", "clients", outside(1000), Confirmed, "clients", "clients", "clients"},
		{"hides in a container", "clients", in(appB, Session), Corrected, appB, appB, appB},
		{"hides, by environment", "clients", in(appB, Environment), Unknown, "", "clients", Unattributed},
		{"Spark's date", "unattributed", in(appB, Session), Corrected, appB, appB, appB},
		{"a remote client", "clients", anyone, Unknown, "", "clients", Unattributed},

		{"by no connection that is known", "clients", own, Unknown, "", "clients", Unattributed},

		{"a DataNode", "replication", aServer, Confirmed, "replication", "replication", "replication"},
		{"its own scanner", "scanner", own, Confirmed, "scanner", "scanner", "scanner"},
		{"a task without a name", "replication", in(appB, Session), Refuted, appB, Unattributed, Unattributed},
		{"a shell without a name", "replication", outside(1000).service(), Refuted, "clients", Unattributed, Unattributed},
		{"the balancer", "balancer", outside(50).service(), Confirmed, "balancer", "balancer", "balancer"},
		{"a remote DataNode", "replication", anyone, Unknown, "", "replication", Unattributed},
		{"with its token", "replication", anyone.service("hdfs").token("hdfs", ""), Confirmed, "replication", "replication", "replication"},
		{"with another's token", "replication", anyone.service("hdfs").token("ann", ""), Refuted, "clients", Unattributed, Unattributed},
		{"tokens, but no names", "replication", anyone.token("ann", ""), Unknown, "", "replication", Unattributed},

		{"no flow, in a container", "attempt_x", in(appB, Cgroup), Refuted, appB, appB, appB},
		{"no flow, in a directory", "attempt_x", in(appB, Directory), Refuted, appB, Unattributed, Unattributed},
		{"no flow, of nobody", "attempt_x", facts{}, Refuted, "", Unattributed, Unattributed},
	} {
		v := judge(c.flow, c.f)
		if v.State != c.state || v.Flow != c.is {
			t.Errorf("%s: %v, %q (%v, %s), want %v, %q", c.name, v.State, v.Flow, v.Evidence, v.Detail, c.state, c.is)
		}
		if got := Verify.Flow(c.flow, v); got != c.verify {
			t.Errorf("%s: verify gives %q, want %q", c.name, got, c.verify)
		}
		if got := Strict.Flow(c.flow, v); got != c.strict {
			t.Errorf("%s: strict gives %q, want %q", c.name, got, c.strict)
		}
		if got := Trust.Flow(c.flow, v); got != c.flow {
			t.Errorf("%s: trust gives %q", c.name, got)
		}
	}
}

// A claim to an application without other evidence gains nothing in mode strict. In mode verify it
// gains something only if nothing at all is known about the process, or if a DataNode forwards the block
// and the first DataNode's node knows nothing.
func TestNothingIsGainedByAName(t *testing.T) {
	flows := []string{appA, appB, spark, "clients", Unattributed, "replication", "balancer", "scanner", "reconstruction", "x"}
	users := []string{"", "ann", "bob", "hdfs"}
	rapid.Check(t, func(t *rapid.T) {
		f := facts{
			known: rapid.Bool().Draw(t, "known"), tokenUser: rapid.SampledFrom(users).Draw(t, "token"),
			owner: rapid.SampledFrom(users).Draw(t, "owner"), services: []string{"hdfs"}, serviceUIDs: map[uint32]bool{50: true},
		}
		if f.known {
			f.peer = Peer{PID: 7, UID: rapid.SampledFrom([]uint32{50, 1000}).Draw(t, "uid")}
			f.peer.Application = rapid.SampledFrom([]string{"", appA, appB}).Draw(t, "in")
			if f.peer.Application == "" {
				f.peer.Outside, f.peer.Server = true, rapid.Bool().Draw(t, "server")
				if f.peer.Server {
					f.peer.Flow = rapid.SampledFrom([]string{"", appA, appB, clients, Unattributed}).Draw(t, "forwards")
				}
			} else {
				f.peer.Evidence = Evidence(rapid.IntRange(int(Cgroup), int(Environment)).Draw(t, "evidence"))
			}
		}
		flow := rapid.SampledFrom(flows).Draw(t, "flow")
		v := judge(flow, f)
		honest := f.peer.Application == flow && f.peer.Evidence.proves() || f.peer.Flow == flow
		token := f.tokenUser != "" && f.tokenUser == f.owner && (!f.peer.Outside || f.peer.Server && f.peer.Flow == "") &&
			(f.peer.Application == "" || f.peer.Application == flow)
		if classOf(flow) == classApplication && !honest && !token {
			if got := Strict.Flow(flow, v); got == flow {
				t.Fatalf("strict: %+v claims %s and gets it: %+v", f, flow, v)
			}
			weak := !f.known || f.peer.Application == flow || f.peer.Server && f.peer.Flow == ""
			if got := Verify.Flow(flow, v); got == flow && !weak {
				t.Fatalf("verify: %+v claims %s and gets it: %+v", f, flow, v)
			}
		}
		if v.State == Confirmed && v.Flow != flow {
			t.Fatalf("confirmed as another: %+v", v)
		}
		if v.Evidence == Environment && v.State != Refuted {
			t.Fatalf("the environment speaks for somebody: %+v", v)
		}
		if v.State == Corrected && f.peer.Server {
			if v.Flow != f.peer.Flow || v.Flow == "" || !forwardable(flow) {
				t.Fatalf("corrected: %+v", v)
			}
		} else if v.State == Corrected && (classOf(flow) != classGroup && !otherStamp(flow, f.peer.Application) || v.Flow != f.peer.Application || !f.peer.Evidence.proves()) {
			t.Fatalf("corrected: %+v", v)
		}
		if class := classOf(flow); class == classService && f.peer.Application != "" && v.State != Refuted {
			t.Fatalf("a container served as %s: %+v", flow, v)
		}
	})
}

func TestChoose(t *testing.T) {
	a, b := in(appA, Session).peer, in(appB, Session).peer
	weakA, shell, server := in(appA, Environment).peer, outside(1000).peer, aServer.peer
	dark := Peer{PID: 9, Detail: "unreadable"}
	for name, c := range map[string]struct {
		flow    string
		holders []Peer
		want    Peer
	}{
		"one":                         {appA, []Peer{shell}, shell},
		"the claimed one":             {appA, []Peer{shell, b, a}, a},
		"passed out of its container": {"clients", []Peer{shell, b}, b},
		"a helper outside":            {appA, []Peer{shell, b}, b},
		"a helper that is not read":   {appA, []Peer{dark, b}, b},
		"an environment":              {appA, []Peer{weakA, b}, b},
		"not read may be anybody":     {appA, []Peer{shell, dark}, dark},
		"a server":                    {"replication", []Peer{b, server}, server},
		"a server for a client":       {"clients", []Peer{server, b}, b},
	} {
		if got := choose(c.flow, c.holders); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestModes(t *testing.T) {
	for _, m := range []Mode{Trust, Verify, Strict} {
		if got, err := ParseMode(m.String()); err != nil || got != m {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	if _, err := ParseMode("maybe"); err == nil {
		t.Error("maybe is a mode")
	}
	if Verify.Flow(appA, Verdict{}) != appA || Strict.Flow(appA, Verdict{}) != Unattributed {
		t.Error("before there is a verdict")
	}
}

func TestWhoseClientItIs(t *testing.T) {
	abroad := facts{known: true, peer: Peer{Node: "n2", User: "bob", UID: 50, Outside: true}}
	for _, c := range []struct {
		name, flow string
		f          facts
		user       string
	}{
		{"a shell", clients, outside(0), "root"},
		{"a user that has no name here", clients, outside(4_000_000_000), "4000000000"},
		{"a token before the process", clients, outside(0).token("ann", ""), "ann"},
		{"a shell on another node", clients, abroad, "bob"},
		{"by way of a DataNode", clients, aServer, ""},
		{"by way of a DataNode that knows the user", clients, aServer.forwards(clients, "ann"), "ann"},
		{"by way of a DataNode that knows the application", clients, aServer.forwards(appA, ""), ""},
		{"by way of a DataNode, with a token", clients, aServer.token("ann", ""), "ann"},
		{"nobody knows", clients, anyone, ""},
		{"only a token", clients, anyone.token("ann", ""), "ann"},
		{"an application's, in truth", clients, in(appB, Cgroup).token("ann", ""), ""},
		{"an application's", appA, in(appA, Cgroup), ""},
		{"a client that forges", appA, outside(0), "root"},
		{"a service", "balancer", outside(50).service("hdfs"), ""},
	} {
		if v := c.f.verdict(c.flow); v.User != c.user {
			t.Errorf("%s: user %q, want %q (%v)", c.name, v.User, c.user, v)
		}
	}
}
