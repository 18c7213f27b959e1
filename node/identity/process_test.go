package identity

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func env(container string) string { return "A=b\x00CONTAINER_ID=" + container + "\x00" }

// want compares the evidence about a peer.
func want(t *testing.T, p Peer, application string, e Evidence) {
	t.Helper()
	if p.Application != application || p.Evidence != e || p.Outside != (application == "") {
		t.Errorf("%+v, want %q by %v", p, application, e)
	}
}

func TestCgroupIsStrongest(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.start(process{pid: 101, parent: 100, session: 100, uid: me, environ: env(contA), cgroup: "0::/hadoop-yarn/" + contB + "\n"})
	want(t, w.peer(101), appB, Cgroup)
}

func TestSessionIsInherited(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.container("ann", contB, 200)
	w.start(process{pid: 101, parent: 100, session: 100, uid: me, environ: env(contA)})
	want(t, w.peer(101), appA, Session)
	// The process claims to be another container in every possible way.
	w.start(process{pid: 102, parent: 100, session: 100, uid: me, environ: env(contB), cwd: w.dirOf("ann", contB)})
	want(t, w.peer(102), appA, Session)
	// The process has a session of its own, but is still a child.
	w.start(process{pid: 103, parent: 101, uid: me, environ: env(contB)})
	want(t, w.peer(103), appA, Session)
	// An orphan stays in the session.
	w.start(process{pid: 104, parent: 1, session: 100, uid: me, environ: env(contB)})
	want(t, w.peer(104), appA, Session)
}

func TestWhatTheNodeManagerDoesNotKnowIsInNoContainer(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.start(process{pid: 300, uid: me, environ: env(contA), cwd: w.dirOf("ann", contA)})
	want(t, w.peer(300), "", NoEvidence)
	// The process is below a NodeManager that it started itself.
	w.start(process{pid: 301, uid: me, command: []string{"bash", w.dirOf("ann", contA) + "/default_container_executor.sh"}})
	w.start(process{pid: 302, parent: 301, uid: me, environ: env(contA)})
	want(t, w.peer(302), "", NoEvidence)
}

func TestRecordsAreReadAgainForANewContainer(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	in := w.inspector(nil)
	look := func(pid int) Peer {
		p, err := in.inspect(context.Background(), pid, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	want(t, look(100), appA, Session)
	w.container("ann", contB, 200)
	want(t, look(200), appB, Session)
	// The container has ended and its record is removed.
	if err := os.RemoveAll(filepath.Join(w.local, "nmPrivate", appB)); err != nil {
		t.Fatal(err)
	}
	want(t, look(200), "", NoEvidence)
}

// A record may outlive its container by minutes, and then another process may have the recorded
// number. Or the clock may have been changed. So such a record proves nothing in either direction.
func TestStaleRecordIsNotTheNextProcess(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.container("ann", contB, 200)
	record := filepath.Join(w.local, "nmPrivate", appA, contA, contA+".pid")
	for _, c := range []struct {
		age     time.Duration // of the record
		process time.Duration
		e       Evidence
	}{
		{time.Hour, 0, Environment},
		{time.Hour, time.Hour - slack + 500*time.Millisecond, Session},
		{time.Hour, time.Hour - slack - 500*time.Millisecond, Environment},
		{time.Hour, time.Hour + early - 500*time.Millisecond, Session},
		{time.Hour, time.Hour + early + 500*time.Millisecond, Environment},
	} {
		now := time.Now()
		written := now.Add(-c.age)
		if err := os.Chtimes(record, written, written); err != nil {
			t.Fatal(err)
		}
		w.start(process{pid: 100, uid: me, began: now.Add(-c.process), environ: env(contA)})
		if p := w.peer(100); p.Evidence != c.e {
			t.Errorf("a record %v and a process %v old: %+v", c.age, c.process, p)
		}
	}
	w.container("ann", contA, 100)
	want(t, w.peer(100), appA, Session)
	// The recorded number belongs to a process in another session.
	w.start(process{pid: 100, session: 50, uid: me})
	w.start(process{pid: 105, parent: 1, session: 100, uid: me, environ: env(contA)})
	want(t, w.peer(105), "", NoEvidence)
	// The session's leader has ended: any process may get the number.
	w.end(100)
	want(t, w.peer(105), "", NoEvidence)
}

// The numbers in the records belong to another pid namespace, and the NodeManager cannot be seen.
func TestRecordsOfAnotherNamespaceProveNothing(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.end(100)
	w.start(process{pid: 7100, uid: me, environ: env(contA)})
	want(t, w.peer(7100), appA, Environment)
	w.start(process{pid: 7101, uid: me})
	want(t, w.peer(7101), "", NoEvidence)
}

// A NodeManager runs in its own pid namespace, for example in a container of the machine.
func TestNodeManagerInANamespaceOfItsOwn(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100) // the number in that namespace
	w.end(100)
	java := []string{"java", "-Xmx1g", mainClass}
	nm := process{pid: 5000, uid: me, command: java, space: "pid:[2]", innerPID: 1, innerSession: 1}
	w.start(nm)
	w.start(process{pid: 7100, parent: 5000, uid: me, space: "pid:[2]", innerPID: 100, innerSession: 100})
	w.start(process{pid: 7101, parent: 7100, session: 7100, uid: me, space: "pid:[2]", innerPID: 101, innerSession: 100, environ: env(contB)})
	want(t, w.peer(7101), appA, Session)
	// In that namespace, an orphan becomes the NodeManager's child, whatever it does.
	w.start(process{pid: 7102, parent: 5000, session: 7100, uid: me, space: "pid:[2]", innerPID: 102, innerSession: 100})
	want(t, w.peer(7102), appA, Session)
	// The process is in its own session.
	w.start(process{pid: 7103, parent: 5000, uid: me, space: "pid:[2]", innerPID: 103, innerSession: 103, environ: env(contA)})
	want(t, w.peer(7103), "", NoEvidence)
	// The process has the recorded number in our namespace, or in a namespace that it has made.
	w.start(process{pid: 100, uid: me, environ: env(contA)})
	want(t, w.peer(100), "", NoEvidence)
	w.start(process{pid: 8000, uid: me, space: "pid:[3]", innerPID: 100, innerSession: 100, environ: env(contA)})
	want(t, w.peer(8000), "", NoEvidence)
	// Below the container it may create any namespaces.
	w.start(process{pid: 7104, parent: 7101, session: 7104, uid: me, space: "pid:[4]", innerPID: 1, innerSession: 100})
	want(t, w.peer(7104), appA, Session)
	// The directories become known only after a search without a result.
	in := w.inspector(nil)
	in.records.setDirs(nil, nil)
	for _, e := range []Evidence{NoEvidence, Session} {
		if p, err := in.inspect(context.Background(), 7100, time.Now()); err != nil || p.Evidence != e {
			t.Errorf("%+v, %v, want %v", p, err, e)
		}
		in.records.setDirs([]string{w.local}, nil)
	}
	// Without the NodeManager nothing is certain.
	w.end(5000)
	w.end(100)
	want(t, w.peer(8000), appA, Environment)
	// The class is only a part of an argument.
	nm.command = []string{"java", "-D" + mainClass}
	w.start(nm)
	want(t, w.peer(8000), appA, Environment)
}

// A NodeManager of another user than the records' owner does not count; and the number of known
// NodeManagers is limited.
func TestWhichNodeManagers(t *testing.T) {
	w := newWorld(t)
	for i := range maxManagers + 1 {
		w.start(process{pid: 5000 + i, uid: me, command: []string{"java", mainClass, "x"}})
	}
	for owner, n := range map[uint32]int{me: maxManagers, me + 1: 0} {
		m := managers{class: mainClass}
		m.look(proc(w.proc), map[uint32]bool{owner: true})
		if len(m.known) != n {
			t.Errorf("%d NodeManagers of user %d, want %d", len(m.known), owner, n)
		}
	}
}

// The namespace of a process that ends meanwhile is unknown, but not because of missing rights.
func TestNamespaceOfAProcessThatEnds(t *testing.T) {
	p := proc("/proc")
	for range 400 {
		cmd := exec.Command("true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() { waited <- cmd.Wait() }()
		var err error
		for err == nil {
			_, err = p.space(cmd.Process.Pid)
		}
		if errors.Is(err, os.ErrPermission) {
			t.Fatal(err)
		}
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
	}
}

// The test has no permission to read the NodeManager's namespace.
func TestHiddenNamespace(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.start(process{pid: 5000, uid: me, command: []string{"java", mainClass}, space: "pid:[2]", innerPID: 1, innerSession: 1})
	if err := os.Remove(filepath.Join(w.proc, "5000/ns/pid")); err != nil {
		t.Fatal(err)
	}
	w.start(process{pid: 300, uid: me, environ: env(contA)})
	want(t, w.peer(300), appA, Environment)
}

// Two NodeManagers have the same number for two containers.
func TestTwoNamespaces(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.container("bob", contB, 100)
	w.end(100)
	for i, c := range []struct{ container, app string }{{contA, appA}, {contB, appB}} {
		space := []string{"pid:[2]", "pid:[3]"}[i]
		age := time.Duration(i+1) * 20 * time.Second
		w.start(process{pid: 5000 + i, uid: me, command: []string{"java", mainClass}, space: space, innerPID: 1, innerSession: 1})
		w.start(process{pid: 7000 + i, uid: me, space: space, innerPID: 100, innerSession: 100, age: age})
		written := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(w.local, "nmPrivate", c.app, c.container, c.container+".pid"), written, written); err != nil {
			t.Fatal(err)
		}
	}
	want(t, w.peer(7000), appA, Session)
	want(t, w.peer(7001), appB, Session)
}

// unrecorded returns a world in which the NodeManager's own directory cannot be read.
func unrecorded(t *testing.T) *world {
	w := newWorld(t)
	if err := os.RemoveAll(filepath.Join(w.local, "nmPrivate")); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestDirectory(t *testing.T) {
	w := unrecorded(t)
	dirA := w.mkdir(w.dirOf("ann", contA))
	dirB := w.mkdir(w.dirOf("bob", contB))
	in := w.inspector(table{appA: "ann@REALM", appB: "bob"})
	look := func(p process) Peer {
		t.Helper()
		w.start(p)
		peer, err := in.inspect(context.Background(), p.pid, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return peer
	}
	want(t, look(process{pid: 10, uid: me, cwd: dirA}), appA, Directory)
	// The process has changed its directory. Its parent is the wrapper that the NodeManager
	// started.
	w.start(process{pid: 20, uid: me, command: []string{"bash", dirA + "/default_container_executor.sh"}})
	want(t, look(process{pid: 21, parent: 20, uid: me, cwd: dirB, environ: env(contB)}), appA, Directory)
	// The directory belongs to another user.
	want(t, look(process{pid: 11, uid: me + 1, cwd: dirA}), appA, Environment)
	// A user other than the application's has created the directory below its own directory.
	mine := w.mkdir(w.dirOf("bob", contA))
	want(t, look(process{pid: 12, uid: me, cwd: mine}), appA, Environment)
	// There is a link in place of the directory.
	link := filepath.Join(filepath.Dir(w.dirOf("ann", contA)), "container_1795320415451_0010_01_000009")
	w.link(dirA, link)
	want(t, look(process{pid: 13, parent: 1, uid: me, cwd: link}), appA, Environment)
	// The directory is not below the NodeManager's directory.
	w.mkdir(w.proc, "x", "usercache/ann/appcache", appA, contA)
	fake := filepath.Join(w.proc, "x", "usercache/ann/appcache", appA, contA)
	want(t, look(process{pid: 14, uid: me, cwd: fake}), "", NoEvidence)
	// The process's own command line proves nothing.
	want(t, look(process{pid: 15, uid: me, command: []string{"java", dirA}}), "", NoEvidence)
	// Without a known user of the application the directory proves nothing.
	in.users = nil
	want(t, look(process{pid: 10, uid: me, cwd: dirA}), appA, Environment)
}

func TestWorkingDirectoryOfAnotherName(t *testing.T) {
	w := unrecorded(t)
	dir := w.mkdir(w.dirOf("ann", contA))
	deep := w.mkdir(dir, "tmp/x")
	other := w.mkdir(w.proc, "mounted")
	link := filepath.Join(w.proc, "cwd")
	for target, names := range map[string][2]bool{dir: {true, false}, deep: {false, true}, other: {false, false}} {
		w.link(target, link)
		if got := really(link, w.local, dir); got != names[0] {
			t.Errorf("%s is %s: %v", target, dir, got)
		}
		if got := really(link, w.local, deep); got != names[1] {
			t.Errorf("%s is %s: %v", target, deep, got)
		}
	}
	in := w.inspector(table{appA: "ann"})
	w.start(process{pid: 10, uid: me, cwd: deep})
	if p, err := in.inspect(context.Background(), 10, time.Now()); err != nil || p.Evidence != Directory {
		t.Errorf("%+v, %v", p, err)
	}
}

// As in a mount namespace, the link leads to another directory than its name says.
func TestWorkingDirectoryThatOnlySeemsToBeThere(t *testing.T) {
	w := unrecorded(t)
	w.mkdir(w.dirOf("ann", contA))
	elsewhere := w.mkdir(w.proc, "elsewhere")
	w.mkdir(elsewhere, "ann/appcache", appA, contA)
	w.link(w.mkdir(elsewhere, "x"), w.local, "usercache", "x")
	in := w.inspector(table{appA: "ann"})
	w.start(process{pid: 10, uid: me, cwd: w.local + "/usercache/x/../ann/appcache/" + appA + "/" + contA})
	p, err := in.inspect(context.Background(), 10, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	want(t, p, appA, Environment)
}

func TestSparkStandalone(t *testing.T) {
	w := unrecorded(t)
	work := w.mkdir(w.proc, "work")
	w.mkdir(work, spark, "0")
	in := w.inspector(nil)
	in.records.setDirs(nil, []string{work})
	w.start(process{pid: 10, uid: me, cwd: filepath.Join(work, spark, "0")})
	p, err := in.inspect(context.Background(), 10, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	want(t, p, spark, Directory)
}

// The NodeManager's records are complete, and do not contain the executors of a standalone
// worker.
func TestSparkStandaloneBesideANodeManager(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	work := w.mkdir(w.proc, "work")
	w.mkdir(work, spark, "0")
	in := w.inspector(nil)
	for _, dirs := range [][]string{nil, {work}} {
		in.records.setDirs([]string{w.local}, dirs)
		for i, c := range []struct {
			p           process
			application string
			evidence    Evidence
		}{
			{process{cwd: filepath.Join(work, spark, "0")}, spark, Directory},
			{process{cwd: filepath.Join(work, spark, "0"), environ: env(contA)}, spark, Directory},
			{process{environ: env(contA)}, "", NoEvidence},
			{process{cwd: w.dirOf("ann", contA)}, "", NoEvidence},
			{process{cwd: filepath.Join(work, spark, "0"), session: 100}, appA, Session},
		} {
			c.p.pid, c.p.uid = 200+i, me
			w.start(c.p)
			p, err := in.inspect(context.Background(), c.p.pid, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if dirs == nil && c.evidence == Directory {
				c.application, c.evidence = "", NoEvidence // without known workers none of their executors is found
			}
			want(t, p, c.application, c.evidence)
		}
	}
}

func TestEnvironment(t *testing.T) {
	w := unrecorded(t)
	w.start(process{pid: 10, uid: me, environ: env(contA)})
	want(t, w.peer(10), appA, Environment)
	w.start(process{pid: 11, parent: 10, uid: me})
	want(t, w.peer(11), appA, Environment)
	w.start(process{pid: 12, parent: 10, uid: me, environ: env(contB)})
	want(t, w.peer(12), appB, Environment)
	w.start(process{pid: 13, uid: me, environ: "XCONTAINER_ID=" + contA + "\x00CONTAINER_ID=no\x00CONTAINER_ID=" + contA + "\x00"})
	want(t, w.peer(13), "", NoEvidence)
	// The environment is too long to be read to its end, where the variable may be.
	w.start(process{pid: 14, uid: me, environ: strings.Repeat("A=b\x00", maxEnviron/4) + env(contA)})
	if p, err := w.inspector(nil).inspect(context.Background(), 14, time.Now()); !errors.Is(err, errLong) {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestAncestors(t *testing.T) {
	w := unrecorded(t)
	// A younger process has the parent's number.
	w.start(process{pid: 10, uid: me, environ: env(contA)})
	w.start(process{pid: 11, parent: 10, uid: me, age: time.Hour})
	want(t, w.peer(11), "", NoEvidence)
	// A cycle of parents.
	w.start(process{pid: 20, parent: 21, uid: me})
	w.start(process{pid: 21, parent: 20, uid: me})
	in := w.inspector(nil)
	l, err := in.proc.life(20)
	if err != nil {
		t.Fatal(err)
	}
	line, err := in.line(context.Background(), l)
	if err != nil || len(line) > maxAncestors {
		t.Errorf("%d, %v", len(line), err)
	}
}

func TestUserOfAnApplication(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	in := w.inspector(nil)
	if got := in.user(appA); got != "ann" {
		t.Errorf("%q", got)
	}
	// Another user creates a directory of that name below its own.
	w.mkdir(w.dirOf("bob", contA))
	if got := w.inspector(nil).user(appA); got != "" {
		t.Errorf("%q although two users have a directory", got)
	}
	// A user creates a directory for an application that this NodeManager does not know.
	w.mkdir(w.dirOf("bob", contB))
	if got := w.inspector(nil).user(appB); got != "" {
		t.Errorf("%q by a directory alone", got)
	}
	if got := w.inspector(table{appA: "carl/host@REALM"}).user(appA); got != "carl" {
		t.Errorf("the table says %q", got)
	}
}

func TestDirectoriesBound(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	for _, user := range []string{"bob", "carl", "dora"} {
		w.mkdir(w.local, "usercache", user, "appcache")
	}
	// nmPrivate contains the application, usercache contains four users, and ann's directory
	// contains the application again.
	for bound := range 8 {
		r := w.inspector(nil).records
		r.bound = bound
		want := ""
		if bound >= 6 {
			want = "ann"
		}
		if got := r.user(appA); got != want {
			t.Errorf("%q after %d of 6 entries", got, bound)
		}
		// The entries are the application and the container.
		if id, complete := r.lookup([]life{{pid: 100, session: 100}}, time.Now()); complete != (bound >= 2) || complete != (id == contA) {
			t.Errorf("%q, complete %v, after %d of 2 entries", id, complete, bound)
		}
	}
	// A second user's directory may be beyond the bound.
	w.mkdir(w.dirOf("bob", contA))
	for bound := range 9 {
		r := w.inspector(nil).records
		r.bound = bound
		if got := r.user(appA); got != "" {
			t.Errorf("%q after %d entries, although two users have a directory", got, bound)
		}
	}
}

func TestStat(t *testing.T) {
	rest := " S 7 8 9 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1\n"
	for name, text := range map[string]string{
		"plain": "42 (java)" + rest, "spaces": "42 (a b)" + rest, "parentheses": "42 () S 1 1 1 (x)" + rest,
		"its own line": "42 (java) R 1 100 100 0\n)" + rest,
	} {
		if got, err := parseStat([]byte(text)); err != nil || got != (life{42, 7, 9, 12345, false}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "42", "42 (java", ")42(", "x (java)" + rest, "42 (java) S 7 8", "42 (java) S x 8 9 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 1", "-1 (java)" + rest} {
		if got, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func FuzzProcess(f *testing.F) {
	f.Add([]byte("42 (a b)) S 7 8 9 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1\n"))
	f.Add([]byte("Name:\tx\nUid:\t1\t2\t3\t4\n"))
	f.Add([]byte("A=b\x00CONTAINER_ID=" + contA + "\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := parseStat(b); err == nil && (l.pid <= 0 || l.parent < 0 || l.session < 0) {
			t.Errorf("%q became %+v", b, l)
		}
		if l, err := parseStat(b); err == nil {
			l.began(time.Now())
		}
		_, _ = parseStatus(b)
		eachArgument(b, func(arg string) bool { return len(arg) <= len(b) })
	})
}
