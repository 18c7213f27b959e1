package identity

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

const regionServer = "org.apache.hadoop.hbase.regionserver.HRegionServer"

var services = []Rule{
	{Name: "hbase", User: "hbase", Program: "HRegionServer"},
	{Name: "hbase", User: "hbase", Program: "org.apache.hadoop.hbase.master.*"},
	{Name: "impala", User: "impala"},
	{Name: "old-hbase", User: AnyUser, Client: "hb_rs_*"},
	{Name: "trino", User: AnyUser, Program: "io.trino.server.TrinoServer"},
	{Name: "numbered", User: "4000000000"},
}

// running is a process of a user that is in no container.
func running(user, program string) facts {
	return facts{known: true, user: user, rules: services, peer: Peer{PID: 7, UID: 1000, Outside: true, OnHost: true, Program: program}}
}

func (f facts) elsewhere() facts {
	f.peer.Node, f.peer.User = "n2", f.user
	return f
}

func (f facts) called(name string) facts {
	f.name = name
	return f
}

func (f facts) ruled() facts {
	f.rules = services
	return f
}

func TestNamedServices(t *testing.T) {
	numbered := running("4000000000", "x")
	numbered.peer.UID = 4000000000
	pod := running("impala", "impalad") // an image can have any user
	pod.peer.OnHost = false
	dataNode := running("impala", "")
	dataNode.peer.Server = true
	for _, c := range []struct {
		name, flow     string
		f              facts
		state          State
		by             Evidence
		verify, strict string
	}{
		{"by user and class", clients, running("hbase", regionServer), Corrected, Named, "service:hbase", "service:hbase"},
		{"by user and package", clients, running("hbase", "org.apache.hadoop.hbase.master.HMaster"), Corrected, Named, "service:hbase", "service:hbase"},
		{"on another node", clients, running("hbase", regionServer).elsewhere(), Corrected, Named, "service:hbase", "service:hbase"},
		{"another user's region server", clients, running("ann", regionServer), Confirmed, Outside, clients, clients},
		{"the user's shell", clients, running("hbase", "org.apache.hadoop.fs.FsShell"), Confirmed, Outside, clients, clients},
		{"a program that is not known", clients, running("hbase", ""), Confirmed, Outside, clients, clients},
		{"by user", clients, running("impala", "impalad"), Corrected, Named, "service:impala", "service:impala"},
		{"by user, with the name of no application", Unattributed, running("impala", ""), Corrected, Named, "service:impala", "service:impala"},
		{"by program", clients, running("ann", "io.trino.server.TrinoServer"), Corrected, Named, "service:trino", "service:trino"},
		{"by number", clients, numbered, Corrected, Named, "service:numbered", "service:numbered"},
		{"by another machine's number", clients, numbered.elsewhere(), Confirmed, Outside, clients, clients},
		// A service that names an application with an invented number is still the service.
		{"with an application's name", appA, running("impala", "impalad"), Corrected, Named, "service:impala", "service:impala"},
		{"a forger", appA, running("ann", "impalad"), Refuted, Outside, Unattributed, Unattributed},
		// The client's name alone is a claim.
		{"by the client's name", Unattributed, running("ann", "x").called("hb_rs_host,16020,1"), Unknown, NoEvidence, "service:old-hbase", Unattributed},
		{"by the client's name, from anywhere", Unattributed, anyone.ruled().called("hb_rs_host,16020,1"), Unknown, NoEvidence, "service:old-hbase", Unattributed},
		{"another name", Unattributed, anyone.ruled().called("trino"), Unknown, NoEvidence, Unattributed, Unattributed},
		// A token shows the user, and not the program.
		{"by token", clients, anyone.ruled().token("impala", ""), Corrected, Token, "service:impala", "service:impala"},
		{"by token, without the program", clients, anyone.ruled().token("hbase", ""), Unknown, NoEvidence, clients, Unattributed},
		{"another user's token", clients, anyone.ruled().token("ann", ""), Unknown, NoEvidence, clients, Unattributed},
		{"for another user", clients, running("impala", "impalad").token("ann", ""), Corrected, Named, "service:impala", "service:impala"},
		// Containers and servers belong to no named service.
		{"in a container", clients, in(appB, Session).ruled().token("impala", ""), Corrected, Session, appB, appB},
		{"perhaps in a container", clients, in(appB, Environment).ruled().token("impala", ""), Unknown, NoEvidence, clients, Unattributed},
		{"in a pod that works for no application", clients, pod, Confirmed, Outside, clients, clients},
		{"by way of a DataNode", clients, dataNode, Confirmed, Outside, clients, clients},
		{"the DataNode's own", clients, facts{own: true, rules: services, tokenUser: "impala"}, Unknown, NoEvidence, clients, Unattributed},
		// Nobody gets a named service by its name.
		{"the flow's name", "service:impala", running("ann", "x"), Refuted, NoEvidence, Unattributed, Unattributed},
		{"the flow's name, of the service", "service:impala", running("impala", "x"), Refuted, NoEvidence, Unattributed, Unattributed},
		{"a server's work", "replication", running("impala", "x"), Refuted, Account, Unattributed, Unattributed},
	} {
		v := judge(c.flow, c.f)
		if v.State != c.state || v.Evidence != c.by || Verify.Flow(c.flow, v) != c.verify || Strict.Flow(c.flow, v) != c.strict {
			t.Errorf("%s: %+v; verify gives %q, strict %q", c.name, v, Verify.Flow(c.flow, v), Strict.Flow(c.flow, v))
		}
		if v := c.f.verdict(c.flow); strings.HasPrefix(v.Flow, NamedFlow) && v.State == Corrected && v.User != "" {
			t.Errorf("%s: the service takes turns by user %q", c.name, v.User)
		}
	}
}

// Hive on Spark names applications with the time of a query. Executors get the application of their container.
func TestPhantomApplications(t *testing.T) {
	const phantom = "application_1795320499999_0001"
	for e, want := range map[Evidence]string{Cgroup: appA, Session: appA, Directory: appA, Environment: Unattributed} {
		v := judge(phantom, in(appA, e))
		if got := Verify.Flow(phantom, v); got != want || (v.State == Corrected) != (want == appA) {
			t.Errorf("%v: %+v, flow %s", e, v, got)
		}
	}
	// The next application of the same ResourceManager is one that exists.
	if v := judge(appB, in(appA, Session)); v.State != Refuted {
		t.Errorf("%+v", v)
	}
}

// Whatever the rules are, a process gets a named service only if a rule's user is its own, or if a rule for any user matches.
func TestNothingIsGainedByARule(t *testing.T) {
	users := []string{"ann", "bob", "17"}
	programs := []string{"", "impalad", regionServer}
	rapid.Check(t, func(t *rapid.T) {
		f := facts{known: rapid.Bool().Draw(t, "known"), name: rapid.SampledFrom([]string{"", "hb_rs_1"}).Draw(t, "client")}
		for range rapid.IntRange(0, 3).Draw(t, "rules") {
			f.rules = append(f.rules, Rule{
				Name: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"), User: rapid.SampledFrom(append(users, AnyUser)).Draw(t, "user"),
				Program: rapid.SampledFrom([]string{"", "impalad", "*Server"}).Draw(t, "program"), Client: rapid.SampledFrom([]string{"", "hb_*"}).Draw(t, "pattern"),
			})
		}
		user := rapid.SampledFrom(users).Draw(t, "process's user")
		if f.known {
			f.user = user
			f.peer = Peer{PID: 7, UID: 17, Outside: rapid.Bool().Draw(t, "outside"), OnHost: rapid.Bool().Draw(t, "on the host"), Server: rapid.Bool().Draw(t, "server"), Program: rapid.SampledFrom(programs).Draw(t, "runs")}
		} else {
			f.tokenUser = rapid.SampledFrom(append(users, "")).Draw(t, "token")
		}
		flow := rapid.SampledFrom([]string{appA, clients, Unattributed, "replication", "service:a", "service:b"}).Draw(t, "flow")
		v := judge(flow, f)
		got, named := strings.CutPrefix(Verify.Flow(flow, v), NamedFlow)
		if !named {
			return
		}
		allowed, certain := false, false
		for _, r := range f.rules {
			mine := r.User == AnyUser || f.known && (r.User == f.user || r.User == "17") || !f.known && r.User == f.tokenUser
			if allowed = r.Name == got && mine; allowed {
				certain = r.User != AnyUser || r.Program != ""
				break
			}
		}
		if !allowed || f.peer.Server || f.known && !(f.peer.Outside && f.peer.OnHost) {
			t.Fatalf("%+v claims %s and gets %s by %+v", f.peer, flow, got, f.rules)
		}
		if strict := Strict.Flow(flow, v); strict != Unattributed && !certain && v.Evidence == NoEvidence {
			t.Fatalf("strict gives %s by the client's name alone", strict)
		}
	})
}

func TestClaimed(t *testing.T) {
	for claim, want := range map[string][2]string{
		"client:hb_rs_1": {Unattributed, "hb_rs_1"}, "client:": {Unattributed, ""}, clients: {clients, ""}, appA: {appA, ""},
	} {
		if flow, name := Claimed(claim); flow != want[0] || name != want[1] {
			t.Errorf("%s: %s, %s", claim, flow, name)
		}
	}
}

func TestMainOf(t *testing.T) {
	for line, want := range map[string]string{
		"java":      "",
		"java -cp":  "",
		"java -jar": "",
		"java -Dproc_regionserver -Xmx1g -cp a:b " + regionServer + " start":                                                                    regionServer,
		"java --add-opens java.base/java.lang=ALL-UNNAMED -classpath a @args io.trino.server.TrinoServer":                                       "io.trino.server.TrinoServer",
		"java -p mods -m io.trino/io.trino.server.TrinoServer":                                                                                  "io.trino.server.TrinoServer",
		"java -Xmx1g -jar /opt/presto/launcher.jar -jar x":                                                                                      "launcher.jar",
		"java -cp a org.apache.hadoop.util.RunJar /opt/hive/lib/hive-service-4.0.1.jar org.apache.hive.service.server.HiveServer2 --hiveconf a": "org.apache.hive.service.server.HiveServer2",
		"java -cp a org.apache.hadoop.util.RunJar /tmp/a.jar /in /out":                                                                          "a.jar",
		"java -cp a org.apache.hadoop.util.RunJar":                                                                                              "org.apache.hadoop.util.RunJar",
		"java -cp a org.apache.spark.deploy.SparkSubmit --master yarn --class org.apache.spark.sql.hive.thriftserver.HiveThriftServer2 x.jar":   "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2",
		"java -cp a org.apache.spark.deploy.SparkSubmit --class":                                                                                "org.apache.spark.deploy.SparkSubmit",
	} {
		if got := mainOf(strings.ReplaceAll(line, " ", "\x00")); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	if got := mainOf(""); got != "" {
		t.Errorf("no command line: %q", got)
	}
}

func FuzzMainOf(f *testing.F) {
	f.Add("java\x00-cp\x00a\x00" + regionServer + "\x00start\x00")
	f.Add("java\x00-jar\x00/a/b.jar\x00")
	f.Add("java\x00-m\x00a/b\x00")
	f.Add("java\x00org.apache.hadoop.util.RunJar\x00a.jar\x00a.B\x00")
	f.Add("java\x00org.apache.spark.deploy.SparkSubmit\x00--class\x00a.B\x00")
	f.Add("\x00\x00-\x00")
	f.Fuzz(func(t *testing.T, text string) {
		if main := mainOf(text); strings.Contains(main, "\x00") || len(main) > len(text) {
			t.Errorf("%q became %q", text, main)
		}
	})
}

func TestPrograms(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		p    process
		want string
	}{
		"an executable":            {process{exe: "/usr/lib/impala/sbin/impalad"}, "impalad"},
		"replaced while it runs":   {process{exe: "/usr/lib/impala/sbin/impalad (deleted)"}, "impalad"},
		"a JVM":                    {process{exe: "/usr/lib/jvm/bin/java", command: []string{"/usr/bin/java", "-Xmx1g", regionServer, "start"}}, regionServer},
		"a shell called java":      {process{exe: "/bin/sh", command: []string{"java", regionServer}}, "sh"},
		"a long command line":      {process{exe: "/bin/java", command: []string{"java", "A", strings.Repeat("x", maxCommand)}}, "A"},
		"a long class path":        {process{exe: "/bin/java", command: []string{"java", "-cp", strings.Repeat("x", maxCommand), "A"}}, ""},
		"a long name":              {process{exe: "/bin/" + strings.Repeat("x", maxProgram+1)}, ""},
		"a name of many lines":     {process{exe: "/bin/java", command: []string{"java", "A\nB"}}, ""},
		"no right to the program":  {process{}, ""},
		"a name that is not UTF-8": {process{exe: "/bin/\xff"}, ""},
	} {
		c.p.pid, c.p.uid = 100, me
		w.start(c.p)
		if got := proc(w.proc).program(100); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		w.end(100)
	}
}

// Rules can be replaced. Verdicts by the old rules no longer count, also those of lookups in progress.
func TestRulesAreReplaced(t *testing.T) {
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.start(process{pid: 101, uid: me, sockets: []int{77}, exe: "/usr/bin/impalad"})
	w.connect(clientEnd, serverEnd, me, 77)
	c := newChecker(t, w.settings())
	if v := ask(t, c, claim(clients)); v.State != Confirmed || v.User != self.Username {
		t.Errorf("without rules: %+v", v)
	}
	c.SetRules([]Rule{{Name: "impala", User: self.Username, Program: "impala*"}})
	if v := ask(t, c, claim(clients)); v.State != Corrected || v.Flow != "service:impala" || v.User != "" {
		t.Errorf("with a rule: %+v", v)
	}
	if v := c.Process(101, me, Unattributed); v.State != Corrected || v.Flow != "service:impala" {
		t.Errorf("by an agent's connection: %+v", v)
	}
	l := &lookup{claim: claim(appA), ruleSet: c.ruleSet}
	c.SetRules(nil)
	c.keep(l, Verdict{State: Corrected, Flow: "service:impala"}, hold{})
	for _, flow := range []string{clients, appA} {
		if v := ask(t, c, claim(flow)); v.Flow == "service:impala" {
			t.Errorf("the rules are gone: %+v", v)
		}
	}
}

// copyAs copies this test to a file of the given name that every user may execute.
func copyAs(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	copied, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(copied, self)
	}
	if closed := copied.Close(); err == nil {
		err = closed
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Real processes of one and, if the test may, of two users, with connections of their own.
func TestRealServices(t *testing.T) {
	addr := server(t)
	java, impalad := copyAs(t, "java"), copyAs(t, "impalad")
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	hbase := startCommand(t, exec.Command(java, "-Xmx1g", "-cp", "a:b", regionServer, "start"), "dial "+addr, nil)
	shell := startCommand(t, exec.Command(java, "org.apache.hadoop.fs.FsShell", regionServer), "dial "+addr, nil)
	daemon := startCommand(t, exec.Command(impalad, "-be_port=22000"), "dial "+addr, nil)
	c := realChecker(t)
	c.SetRules([]Rule{
		{Name: "hbase", User: self.Username, Program: "HRegionServer"},
		{Name: "impala", User: self.Username, Program: "impalad"},
		{Name: "other", User: "65432"},
	})
	check := func(who peerChild, want string) {
		t.Helper()
		client := netip.MustParseAddrPort(who.client)
		for _, flow := range []string{clients, Unattributed} {
			v := ask(t, c, Claim{Flow: flow, Client: client.String(), Server: addr})
			if got := Verify.Flow(flow, v); got != want && (want != clients || got != flow) {
				t.Errorf("%s: %+v", flow, v)
			}
		}
	}
	check(hbase, "service:hbase")
	check(shell, clients)
	check(daemon, "service:impala")
	if os.Geteuid() != 0 {
		t.Logf("not root: no process of another user is started")
		return
	}
	const other = 65432
	check(startCommand(t, exec.Command(impalad), "dial "+addr, &syscall.Credential{Uid: other, Gid: other}), "service:other")
	check(startCommand(t, exec.Command(java, regionServer), "dial "+addr, &syscall.Credential{Uid: other + 1, Gid: other}), clients)
}

// A process in a pod may have any user, so it is in no container of an application, but not on the host either.
func TestOnHost(t *testing.T) {
	for cgroup, want := range map[string]bool{
		"0::/system.slice/impala.service\n":                        true,
		"0::/user.slice/kubepods/burstable/pod" + podUID + "\n":    true, // the user's own invention
		"0::/kubepods/burstable/pod" + podUID + "/" + hex64 + "\n": false,
		"3:cpu:/\n2:memory:/kubepods/pod" + podUID + "\n":          false,
		"2:freezer:/mesos/" + otherUID + "\n":                      false,
	} {
		w := newWorld(t)
		w.start(process{pid: 100, uid: me, cgroup: cgroup, exe: "/usr/bin/impalad"})
		p := w.peer(100)
		if !p.Outside || p.OnHost != want || (p.Program == "impalad") != want {
			t.Errorf("%q: %+v", cgroup, p)
		}
	}
}

// Once an application was confirmed, a claim with another time stamp begins in no flow of its own.
func TestWhereStreamsBegin(t *testing.T) {
	const phantom = "application_1795320499999_0001"
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.start(process{pid: 101, parent: 100, session: 100, uid: me, sockets: []int{77}})
	w.connect(clientEnd, serverEnd, me, 77)
	c := newChecker(t, w.settings())
	begins := func(want map[string]string) {
		t.Helper()
		for flow, want := range want {
			if got := c.Begin(flow); got != want {
				t.Errorf("%s begins in %s, want %s", flow, got, want)
			}
		}
	}
	begins(map[string]string{phantom: phantom, appA: appA, clients: clients})
	if v := ask(t, c, claim(phantom)); v.State != Corrected || v.Flow != appA {
		t.Errorf("%+v", v)
	}
	begins(map[string]string{phantom: Unattributed, appA: appA, appB: appB, spark: spark, clients: clients, "replication": "replication"})
	for i := range 2 * maxStamps {
		c.noteStamp(Verdict{State: Confirmed, Flow: fmt.Sprintf("application_%013d_0001", i)})
	}
	if begins(map[string]string{appA: Unattributed}); len(c.stamps) != maxStamps {
		t.Errorf("%d time stamps", len(c.stamps))
	}
	c.noteStamp(Verdict{State: Refuted, Flow: appA})
	c.noteStamp(Verdict{State: Unknown, Flow: appA})
	begins(map[string]string{appA: Unattributed})
	if c.Process(101, me, appA); c.Begin(appA) != appA {
		t.Error("an agent's process was confirmed")
	}
	c.settings.Mode = Strict
	begins(map[string]string{appA: Unattributed, clients: Unattributed})
	c.settings.Mode = Trust
	begins(map[string]string{phantom: phantom})
}
