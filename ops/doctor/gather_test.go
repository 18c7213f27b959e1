package doctor

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"penstock/node/status"
	"penstock/ops/install"
)

// fakeDataNode serves a DataNode's web address, with the given beans by name.
func fakeDataNode(t *testing.T, beans map[string]string, conf string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /jmx", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"beans":[` + beans[r.URL.Query().Get("qry")] + `]}`))
	})
	if conf != "" {
		mux.HandleFunc("GET /conf", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(conf)) })
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestGather(t *testing.T) {
	dir := t.TempDir()
	url := fakeDataNode(t, map[string]string{
		"Hadoop:service=DataNode,name=DataNodeInfo": `{"Version":"3.4.2, r84e8b89"}`,
		"java.lang:type=Runtime":                    `{"Name":"1@host","SpecVersion":"17"}`,
		"penstock:type=Agent":                       `{"State":"woven","WovenMethods":["a","b"],"Connected":true,"Mode":"observe"}`,
	}, `{"properties":[{"key":"dfs.datanode.data.dir","value":"[DISK]file://`+dir+`,/nowhere/at/all"},
		{"key":"dfs.client.read.shortcircuit","value":"true"},{"key":"dfs.domain.socket.path","value":"/run/dn"}]}`)
	f := Gather(t.Context(), Where{Address: "127.0.0.1:1", DataNode: url + "/"}, "v1")
	if f.Status != nil || f.StatusErr == nil {
		t.Error("a daemon answers at port 1")
	}
	d := f.DataNode
	if d.Err != nil || d.Version != "3.4.2" || d.Java != "17" || d.PID != 1 || d.ConfErr != nil {
		t.Errorf("%+v", d)
	}
	if d.Agent == nil || d.Agent.State != "woven" || len(d.Agent.WovenMethods) != 2 || !d.Agent.Connected {
		t.Errorf("%+v", d.Agent)
	}
	if len(f.Directories) != 2 || f.Directories[0].Owner != uint32(os.Getuid()) || f.Directories[1].Err == nil {
		t.Errorf("%+v", f.Directories)
	}
	if f.Memory.Err != nil || f.Memory.Available <= 0 || f.Memory.background() <= 0 || f.KernelRelease == "" {
		t.Errorf("%+v, %q", f.Memory, f.KernelRelease)
	}
	r := Judge(f, nil)
	text := r.Text()
	for _, want := range []string{"fail  daemon", "ok    agent", "warn  short-circuit", "ok    java", "ok    hadoop"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}

func TestGatherANodeManagerAndAFolder(t *testing.T) {
	node := fakeDataNode(t, map[string]string{
		"Hadoop:service=NodeManager,name=NodeManagerMetrics": `{"ContainersLaunched":1}`,
		"java.lang:type=Runtime":                             `{"Name":"1@host","SpecVersion":"17"}`,
		"penstock:type=Agent":                                `{"State":"woven","WovenMethods":["a"],"Connected":true}`,
	}, `{"properties":[{"key":"yarn.nodemanager.aux-services","value":"mapreduce_shuffle"}]}`)
	jar := filepath.Join(t.TempDir(), "penstock-agent.jar")
	if err := os.WriteFile(jar, []byte("PK"), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := t.TempDir()
	if err := os.WriteFile(filepath.Join(conf, "core-site.xml"), []byte("<configuration/>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := install.Apply(install.Options{HadoopConf: conf, AgentJar: jar, Socket: "/run/p/s"}); err != nil {
		t.Fatal(err)
	}
	f := Gather(t.Context(), Where{Address: "127.0.0.1:1", DataNode: "http://127.0.0.1:1", NodeManager: node, HadoopConf: conf}, "v1")
	if f.NodeManager.Err != nil || f.NodeManager.PID != 1 || f.NodeManager.Agent == nil || f.NodeManager.ConfErr != nil {
		t.Errorf("%+v", f.NodeManager)
	}
	text := Judge(f, nil).Text()
	for _, want := range []string{"ok    nodemanager", "ok    shuffle", "ok    installed      " + conf} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if err := os.Remove(filepath.Join(conf, "mapred-site.xml")); err != nil {
		t.Fatal(err)
	}
	f = Gather(t.Context(), Where{Address: "127.0.0.1:1", DataNode: "http://127.0.0.1:1", HadoopConf: conf}, "v1")
	if text := Judge(f, nil).Text(); !strings.Contains(text, "warn  installed") || !strings.Contains(text, "mapred-site.xml is not there") {
		t.Errorf("%s", text)
	}
	f = Gather(t.Context(), Where{Address: "127.0.0.1:1", DataNode: "http://127.0.0.1:1", NodeManager: fakeDataNode(t, nil, ""), HadoopConf: conf + "/none"}, "v1")
	if f.NodeManager.Err == nil || f.Folders[0].Err == nil {
		t.Errorf("%+v, %+v", f.NodeManager, f.Folders)
	}
}

func TestMappedFiles(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := mapped(proc, os.Getpid(), own); err != nil || !ok {
		t.Errorf("%s is not in our own memory: %v", own, err)
	}
	if ok, err := mapped(proc, os.Getpid(), "/libhadoop.so"); err != nil || ok {
		t.Errorf("libhadoop is in our own memory: %v", err)
	}
}

func TestGatherWithoutADataNode(t *testing.T) {
	for name, url := range map[string]string{
		"nobody":          "http://127.0.0.1:1",
		"another service": fakeDataNode(t, nil, ""),
	} {
		if f := Gather(t.Context(), Where{Address: "127.0.0.1:1", DataNode: url}, "v1"); f.DataNode.Err == nil {
			t.Errorf("%s is taken for a DataNode", name)
		}
	}
	bare := fakeDataNode(t, map[string]string{"Hadoop:service=DataNode,name=DataNodeInfo": `{"Version":"3.4.2"}`}, "")
	f := Gather(t.Context(), Where{Address: "127.0.0.1:1", DataNode: bare}, "v1")
	if f.DataNode.Err != nil || f.DataNode.Agent != nil || f.DataNode.ConfErr == nil {
		t.Errorf("%+v", f.DataNode)
	}
}

func TestPathToASocket(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "s")
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	paths, err := pathTo(name)
	if err != nil || paths[0].Name != "/" || paths[len(paths)-1].Name != name || paths[len(paths)-2].Name != dir {
		t.Errorf("%+v, %v", paths, err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "nothing")} {
		if _, err := pathTo(bad); err == nil {
			t.Errorf("%s is a socket", bad)
		}
	}
}

// A NodeManager that is the first process of its container is found by its agent.
func TestSeenFromHere(t *testing.T) {
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		cmd.Wait()
	}()
	pid := cmd.Process.Pid
	own := pid // to itself
	if os.Geteuid() == 0 {
		own = 1
	}
	f := &Facts{Status: &status.Document{Agents: []status.Agent{{PID: int32(os.Getpid()), Role: "nodemanager"}, {PID: int32(pid), Role: "nodemanager"}}}}
	for want, c := range map[int]struct {
		own  int
		role string
	}{pid: {own, "nodemanager"}, os.Getpid(): {os.Getpid(), "nodemanager"}, 1 << 30: {1 << 30, "nodemanager"}, 77: {77, "datanode"}, 0: {0, "nodemanager"}} {
		if got := f.seenFromHere(c.own, c.role); got != want {
			t.Errorf("%s %d is %d here, want %d", c.role, c.own, got, want)
		}
	}
}

func TestOwnProcess(t *testing.T) {
	p, err := readProcess(os.Getpid())
	if err != nil || p.PID != os.Getpid() || int(p.UID) != os.Geteuid() {
		t.Errorf("%+v, %v", p, err)
	}
	if before := monotonic(); before <= 0 || monotonic() < before {
		t.Error("the monotonic clock goes backwards")
	}
}

// A jar must be there, and every user must be able to read it.
func TestTheJarOfExecutors(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "penstock-doctor") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "agent.jar")
	jar := func() Jar {
		return Gather(t.Context(), Where{Address: "127.0.0.1:1", DataNode: "http://127.0.0.1:1", ExecutorJar: name}, "v1").ExecutorJars[0]
	}
	if j := jar(); j.Problem != name+" is not there" || j.For != "--executor-jar" {
		t.Errorf("%+v", j)
	}
	if err := os.WriteFile(name, []byte("PK"), 0o644); err != nil {
		t.Fatal(err)
	}
	if j := jar(); j.Problem != "" || j.Closed != "" {
		t.Errorf("%+v", j)
	}
	for _, closed := range []string{name, dir} {
		if err := os.Chmod(closed, 0o750); err != nil {
			t.Fatal(err)
		}
		if j := jar(); j.Problem != "" || j.Closed != closed {
			t.Errorf("%s is closed: %+v", closed, j)
		}
	}
}
