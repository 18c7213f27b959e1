package hadoop

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/process"
)

// testCluster returns a validated cluster that is configured but not started.
func testCluster(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	cfg.RunDir = t.TempDir()
	cfg.Lib = t.TempDir()
	if err := os.WriteFile(filepath.Join(cfg.Lib, "hadoop-common-"+DefaultVersion+".jar"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	p, err := pickPorts(cfg.resourceManagers(), len(cfg.DataNodes), cfg.NodeManagers)
	if err != nil {
		t.Fatal(err)
	}
	book, err := ledger.Open(cfg.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Cluster{cfg: cfg, ports: p, book: book}
}

func TestValidateNamesTheFieldToChange(t *testing.T) {
	lib := testCluster(t, Config{}).cfg.Lib
	for name, test := range map[string]struct {
		cfg  Config
		want string
	}{
		"relative run folder": {Config{RunDir: "run", Lib: lib}, "RunDir"},
		"version":             {Config{RunDir: "/r", Lib: lib, Version: "3.0.3"}, "3.3.6, 3.4.2, 3.4.3, 3.5.0"},
		"no jars":             {Config{RunDir: "/r", Lib: "/nonexistent"}, "Fetch"},
		"replication":         {Config{RunDir: "/r", Lib: lib, Replication: 2}, "replication 2"},
		"volume type":         {Config{RunDir: "/r", Lib: lib, DataNodes: []DataNode{{Volumes: []Volume{{Dir: "/v", Type: "TAPE"}}}}}, "TAPE"},
		"volume path":         {Config{RunDir: "/r", Lib: lib, DataNodes: []DataNode{{Volumes: []Volume{{Dir: "v"}}}}}, `"v"`},
		"block size":          {Config{RunDir: "/r", Lib: lib, BlockSize: 1024}, "BlockSize 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.cfg.validate()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want an error that names %s", err, test.want)
			}
		})
	}
}

func TestSiteSaysWhatTheExperimentRestsOn(t *testing.T) {
	c := testCluster(t, Config{
		DataNodes: []DataNode{{Volumes: []Volume{{Dir: "/a0"}, {Dir: "/b0", Type: "SSD"}}}, {}},
		BlockSize: 1 << 20, TaskSlots: 3,
		Settings: map[string]string{"dfs.heartbeat.interval": "7", "dfs.datanode.address": "0.0.0.0:1"},
	})
	site := c.site()
	for key, want := range map[string]string{
		"dfs.replication": "1",
		"dfs.blocksize":   "1048576",
		// One ApplicationMaster and three tasks per queue, 512 MB each.
		"yarn.nodemanager.resource.memory-mb":                     "4096",
		"yarn.scheduler.capacity.root.queues":                     "protected,aggressor",
		"yarn.scheduler.capacity.root.protected.maximum-capacity": "50",
		"yarn.scheduler.capacity.root.aggressor.maximum-capacity": "50",
		"dfs.datanode.scan.period.hours":                          "-1",
		"dfs.heartbeat.interval":                                  "7",
	} {
		if site[key] != want {
			t.Errorf("%s = %q, want %q", key, site[key], want)
		}
	}
	if got := c.dataNodeSite(0)["dfs.datanode.data.dir"]; got != "[DISK]file:///a0,[SSD]file:///b0" {
		t.Errorf("volumes of DataNode 0: %s", got)
	}
	if err := c.writeConf("dn0", c.dataNodeSite(0)); err != nil {
		t.Fatal(err)
	}
	xml, err := os.ReadFile(filepath.Join(c.confDir("dn0"), "hdfs-site.xml"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(xml, []byte("<name>dfs.datanode.address</name><value>0.0.0.0:1</value>")) {
		t.Error("Settings do not override a daemon's own property")
	}
	// Hadoop must write no file to the system's temporary folder.
	for key, value := range site {
		if value == "/tmp" || strings.HasPrefix(value, "/tmp/hadoop") {
			t.Errorf("%s = %s", key, value)
		}
	}
}

// `penstock install` prepares the test's folder as it would prepare an operator's.
func TestGovernedConfiguration(t *testing.T) {
	jar := filepath.Join(t.TempDir(), "agent.jar")
	if err := os.WriteFile(jar, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := testCluster(t, Config{NodeManagers: 1, Governed: &Governed{AgentJar: jar, Socket: "/run/test/agent.sock"}})
	for _, name := range []string{"client", "nm0"} {
		if err := c.writeConf(name, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.govern(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"client", "nm0"} {
		for file, want := range map[string]bool{"mapred-site.xml": true, "core-site.xml": false, "yarn-site.xml": false} {
			xml, err := os.ReadFile(filepath.Join(c.confDir(name), file))
			if err != nil {
				t.Fatal(err)
			}
			if got := bytes.Contains(xml, []byte(jar)) && bytes.Contains(xml, []byte("/run/test/agent.sock")); got != want {
				t.Errorf("%s/%s names jar and socket: %v, want %v", name, file, got, want)
			}
		}
	}
}

func TestSiteXMLEscapesAndSorts(t *testing.T) {
	got := string(SiteXML(properties{"b": "1<2&3", "a": "x"}))
	want := "<?xml version=\"1.0\"?>\n<configuration>\n<property><name>a</name><value>x</value></property>\n" +
		"<property><name>b</name><value>1&lt;2&amp;3</value></property>\n</configuration>\n"
	if got != want {
		t.Fatalf("got\n%s", got)
	}
}

func TestPortsAreFreeAndDistinct(t *testing.T) {
	p, err := pickPorts(2, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	all := []int{p.nnRPC, p.nnHTTP}
	for _, r := range p.rm {
		all = append(all, r.client, r.scheduler, r.tracker, r.admin, r.http)
	}
	for _, d := range p.dn {
		all = append(all, d.data, d.ipc, d.http)
	}
	for _, n := range p.nm {
		all = append(all, n.rpc, n.localizer, n.http, n.shuffle)
	}
	seen := map[int]bool{}
	for _, port := range all {
		if seen[port] {
			t.Fatalf("port %d twice", port)
		}
		seen[port] = true
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

// answering returns a cluster whose servers' web addresses answer each path in texts with its text.
func answering(t *testing.T, texts map[string]string) *Cluster {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := texts[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			text = `{"RemoteException":{"exception":"FileNotFoundException","message":"no such thing"}}`
		}
		io.WriteString(w, text)
	}))
	t.Cleanup(web.Close)
	c := testCluster(t, Config{NodeManagers: 1})
	port := web.Listener.Addr().(*net.TCPAddr).Port
	c.ports.nnHTTP, c.ports.dn[0].http, c.ports.rm[0].http = port, port, port
	return c
}

func TestServersAnswers(t *testing.T) {
	ctx := t.Context()
	jmx := func(beans string) *Cluster {
		return answering(t, map[string]string{"/jmx": `{"beans":[` + beans + `]}`})
	}
	live, safe, err := jmx(`{"FSState":"safeMode","NumLiveDataNodes":2}`).LiveDataNodes(ctx)
	if err != nil || live != 2 || !safe {
		t.Errorf("safe mode: %d %v %v", live, safe, err)
	}
	live, safe, err = jmx(`{"FSState":"Operational","NumLiveDataNodes":1}`).LiveDataNodes(ctx)
	if err != nil || live != 1 || safe {
		t.Errorf("operational: %d %v %v", live, safe, err)
	}
	for _, bad := range []string{"", "{},{}", `{"NumLiveDataNodes":"x"}`, "{"} {
		if _, _, err := jmx(bad).LiveDataNodes(ctx); err == nil {
			t.Errorf("%q counts as an answer", bad)
		}
	}
	if err := jmx(`{"BPServiceActorInfo":"[{\"ActorState\":\"RUNNING\",\"LastBlockReport\":\"1\"}]"}`).dataNodeReady(ctx, 0); err != nil {
		t.Error(err)
	}
	for _, not := range []string{"", "{}", `{"BPServiceActorInfo":"[]"}`, `{"BPServiceActorInfo":"[{\"ActorState\":\"CONNECTING\"}]"}`} {
		if jmx(not).dataNodeReady(ctx, 0) == nil {
			t.Errorf("%s counts as ready", not)
		}
	}
	c := answering(t, map[string]string{
		"/ws/v1/cluster/apps/ended": `{"app":{"id":"application_1_1","state":"FINISHED","finalStatus":"SUCCEEDED","progress":100.0,
			"startedTime":1795296118123,"finishedTime":1795296133770,"elapsedTime":15647,"diagnostics":""}}`,
		"/ws/v1/cluster/apps/running": `{"app":{"state":"RUNNING","finalStatus":"UNDEFINED","finishedTime":0,"elapsedTime":5}}`,
		"/ws/v1/cluster/apps/failed":  `{"app":{"state":"FAILED","finalStatus":"FAILED","finishedTime":1795296133770,"diagnostics":"no room\n"}}`,
		"/ws/v1/cluster/info":         `{"clusterInfo":{"id":1795421028848,"state":"STARTED","haState":"STANDBY"}}`,
		"/webhdfs/v1/small":           "text",
		"/fsck":                       "/d/f 20 bytes, 1 block(s):\n0. BP-1:blk_1073741825_1001 len=20 Live_repl=1\n1. BP-1:blk_1073741826_1002 len=20\n",
	})
	s, err := c.Application("ended").Wait(ctx)
	if err != nil || !s.Ended() || s.Elapsed != 15647*time.Millisecond || s.Finished.Sub(s.Started) != s.Elapsed {
		t.Errorf("%+v %v", s, err)
	}
	s, err = c.Application("running").Status(ctx)
	if err != nil || s.Ended() || !s.Finished.IsZero() {
		t.Errorf("%+v %v", s, err)
	}
	if s, err = c.Application("failed").Wait(ctx); err == nil || !strings.Contains(err.Error(), "no room") || s.State != "FAILED" {
		t.Errorf("%+v %v", s, err)
	}
	if state, err := c.haState(ctx, 0); err != nil || state != "STANDBY" {
		t.Errorf("%q, %v", state, err)
	}
	if text, err := c.FS().Read(ctx, "/small"); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := c.FS().Read(ctx, "/missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if names, err := c.BlockNames(ctx, "/d"); err != nil || !slices.Equal(names, []string{"blk_1073741825", "blk_1073741826"}) {
		t.Errorf("blocks %q, %v", names, err)
	}
}

func TestBlockName(t *testing.T) {
	for file, want := range map[string]string{"/d/blk_12": "blk_12", "/d/blk_12_34.meta": "blk_12", "/blk_1/file": "", "": ""} {
		if got := BlockName(file); got != want {
			t.Errorf("%q: %q, want %q", file, got, want)
		}
	}
}

func TestParseClientsOutput(t *testing.T) {
	out := []byte("2026 INFO  YarnClientImpl [main]: Submitted application application_1795296118123_0001\n" +
		"\tFile System Counters\n\t\tHDFS: Number of bytes written=100000000\n\t\tMap output records=7\n\tShuffle Errors\n\t\tBAD_ID=0\n")
	if id := submitted.FindSubmatch(out); id == nil || string(id[1]) != "application_1795296118123_0001" {
		t.Errorf("id %q", id)
	}
	got := parseCounters(out)
	if got["HDFS: Number of bytes written"] != 100000000 || got["Map output records"] != 7 || len(got) != 3 {
		t.Errorf("counters %v", got)
	}
	if parseCounters([]byte("failed\n")) != nil {
		t.Error("counters of a failed job")
	}
}

func TestJobsAreChecked(t *testing.T) {
	good := Job{Kind: TeraSort, Input: "/i", Output: "/o", Queue: QueueAggressor}
	if class, args, err := good.command(); err != nil || !strings.HasSuffix(class, "TeraSort") || len(args) != 2 {
		t.Errorf("%s %v %v", class, args, err)
	}
	if class, args, err := (Job{Kind: Sort, Input: "/i", Output: "/o", Reduces: 3}).command(); err != nil || !strings.HasSuffix(class, ".Sort") || !slices.Equal(args[:2], []string{"-r", "3"}) || !slices.Equal(args[len(args)-2:], []string{"/i", "/o"}) {
		t.Errorf("%s %v %v", class, args, err)
	}
	for _, bad := range []Job{
		{Kind: "grep", Input: "/i", Output: "/o", Queue: QueueAggressor},
		{Kind: WordCount, Output: "/o", Queue: QueueProtected},
		{Kind: WordCount, Input: "/i", Queue: QueueProtected},
		{Kind: TeraGen, Output: "/o", Queue: QueueAggressor},
		{Kind: TestDFSIOWrite, Output: "/o", Queue: QueueAggressor},
		{Kind: TestDFSIOWrite, FileBytes: 1, Queue: QueueAggressor},
		{Kind: TestDFSIORead, Output: "/o", FileBytes: 1, Queue: QueueAggressor},
	} {
		if _, _, err := bad.command(); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}

func TestTextCountsAreTheTextsCounts(t *testing.T) {
	text := Text{Seed: 3, Vocabulary: 100, WordBytes: 12, FileBytes: 1 << 20}
	if err := text.validate(); err != nil {
		t.Fatal(err)
	}
	words := text.words()
	r := text.file(1, words)
	content, err := io.ReadAll(r)
	if err != nil || int64(len(content)) != text.FileBytes {
		t.Fatalf("%d bytes, %v", len(content), err)
	}
	counted := map[string]int64{}
	for _, w := range bytes.Fields(content) {
		counted[string(w)]++
	}
	distinct := 0
	for k, w := range words {
		if counted[string(w)] != r.counts[k] {
			t.Fatalf("%q stands there %d times, counted %d", w, counted[string(w)], r.counts[k])
		}
		if r.counts[k] > 0 {
			distinct++
		}
	}
	if len(counted) != distinct {
		t.Fatalf("%d distinct words in the text, %d of the vocabulary", len(counted), distinct)
	}
	if r.counts[0] < 5*r.counts[9] {
		t.Errorf("rank 1: %d, rank 10: %d: not Zipf-like", r.counts[0], r.counts[9])
	}
	again, err := io.ReadAll(text.file(1, words))
	if err != nil || !bytes.Equal(again, content) {
		t.Error("the same text has other bytes the second time")
	}
	other, err := io.ReadAll(text.file(0, words))
	if err != nil || bytes.Equal(other, content) {
		t.Error("two files have the same bytes")
	}
}

func TestWordCountLines(t *testing.T) {
	word, n, err := parseWordCountLine([]byte("a-b\t42"))
	if err != nil || word != "a-b" || n != 42 {
		t.Errorf("%q %d %v", word, n, err)
	}
	for _, bad := range []string{"a 42", "a\tx", "a\t"} {
		if _, _, err := parseWordCountLine([]byte(bad)); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

func TestSortedRowsAscendAndAreWellFormed(t *testing.T) {
	rows := readRows(t, true, 1000)
	for i := range 1000 {
		row := rows[i*RowBytes : (i+1)*RowBytes]
		if err := checkRow(row, uint64(i), true); err != nil {
			t.Fatal(err)
		}
		if i > 0 && bytes.Compare(rows[(i-1)*RowBytes:(i-1)*RowBytes+10], row[:10]) >= 0 {
			t.Fatalf("key of row %d is not above the one before", i)
		}
	}
	if checkRow(rows[:RowBytes], 1, true) == nil {
		t.Error("row 0 passes as row 1")
	}
	rows[11] = 0
	if checkRow(rows[:RowBytes], 0, false) == nil {
		t.Error("a damaged row passes")
	}
}

func readRows(t *testing.T, sorted bool, n uint64) []byte {
	t.Helper()
	rows, err := io.ReadAll(newRowReader(5, 0, 0, n, n, sorted))
	if err != nil || len(rows) != int(n)*RowBytes {
		t.Fatalf("%d bytes, %v", len(rows), err)
	}
	return rows
}

func TestChecksumIsTeraSorts(t *testing.T) {
	var s Checksum128
	s.add([]byte("123456789")) // CRC-32's standard check value
	if s.String() != "cbf43926" {
		t.Errorf("got %s", s)
	}
	s = Checksum128{Low: ^uint64(0)}
	s.add([]byte("123456789"))
	if s.String() != "100000000cbf43925" {
		t.Errorf("carry: %s", s)
	}
	if err := checkTeraReport("checksum\t100000000cbf43925\n", s); err != nil {
		t.Error(err)
	}
	if checkTeraReport("error\tmisorder in part-r-00000\nchecksum\t100000000cbf43925\n", s) == nil ||
		checkTeraReport("checksum\t1\n", s) == nil {
		t.Error("a bad report passes")
	}
}

func TestLookingReaderLooksOnceAndMayRefuse(t *testing.T) {
	looks := 0
	l := &lookingReader{r: strings.NewReader("0123456789"), at: 4, look: func() error { looks++; return nil }}
	got, err := io.ReadAll(l)
	if err != nil || string(got) != "0123456789" || looks != 1 {
		t.Errorf("%q %v %d looks", got, err, looks)
	}
	l = &lookingReader{r: strings.NewReader("0123456789"), at: 4, look: func() error { return errElsewhere }}
	got, err = io.ReadAll(l)
	if !errors.Is(err, errElsewhere) || string(got) != "0123" || !l.elsewhere {
		t.Errorf("%q %v", got, err)
	}
}

// Stop ends everything, including a server that ignores SIGTERM, and processes that the server has
// started in another session, like the NodeManager's containers.
func TestStopLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	book, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{cfg: Config{RunDir: dir}, book: book}
	c.nn, err = process.Start(process.Options{Book: book, Name: "nn", Log: filepath.Join(dir, "nn.log")}, "/bin/sh", "-c",
		"setsid sh -c 'sleep 0.2; echo stray $$; exec sleep 1000' & trap '' TERM; while :; do sleep 1; done")
	if err != nil {
		t.Fatal(err)
	}
	stray, err := c.nn.Find(t.Context(), regexp.MustCompile(`stray (\d+)`))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	server := c.nn
	if err := c.Stop(); err != nil || server.Alive() {
		t.Errorf("%v, alive %v", err, server.Alive())
	}
	stat, err := os.ReadFile("/proc/" + stray[1] + "/stat") // ended, or a zombie
	if err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("left behind: %s", stat)
	}
}

func TestCheckNamesTheServerThatDied(t *testing.T) {
	dir := t.TempDir()
	book, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{cfg: Config{RunDir: dir}, book: book}
	defer c.Stop()
	c.nn, err = process.Start(process.Options{Book: book, Name: "nn", Log: filepath.Join(dir, "nn.log")}, "/bin/sh", "-c", "echo no such port; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	never := func(context.Context) error { return errors.New("not yet") }
	for what, err := range map[string]error{"await": c.await(t.Context(), "HDFS", never), "Check": c.Check()} {
		if err == nil || !strings.Contains(err.Error(), "nn: exit status 3") || !strings.Contains(err.Error(), "no such port") {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	c.nn = nil
	if err := c.await(ctx, "HDFS", never); err == nil || !strings.Contains(err.Error(), "HDFS not ready: not yet") {
		t.Errorf("await: %v", err)
	}
}

func TestJavaHomeBindsToCPUs(t *testing.T) {
	c := testCluster(t, Config{})
	for cpus, want := range map[string]string{"": "exec /", "0-1": "exec taskset -c 0-1 /"} {
		home, err := c.JavaHome(cpus, "")
		if err != nil {
			t.Fatal(err)
		}
		script, err := os.ReadFile(filepath.Join(home, "bin", "java"))
		if err != nil || !strings.Contains(string(script), want) {
			t.Errorf("%q: %s %v", cpus, script, err)
		}
		grouped, err := c.JavaHome(cpus, "/sys/fs/cgroup/blkio/a")
		if err != nil || grouped == home {
			t.Fatalf("%q: %s with a cgroup, %s without, %v", cpus, grouped, home, err)
		}
		script, err = os.ReadFile(filepath.Join(grouped, "bin", "java"))
		if err != nil || !strings.HasPrefix(string(script), "#!/bin/sh\necho 0 >/sys/fs/cgroup/blkio/a/cgroup.procs || exit 1\nexec ") {
			t.Errorf("%q in a cgroup: %s %v", cpus, script, err)
		}
		if st, err := os.Stat(filepath.Join(home, "bin", "java")); err != nil || st.Mode()&0o111 == 0 {
			t.Errorf("%q: not executable: %v", cpus, err)
		}
	}
}

// TestPair: two ResourceManagers share a configuration except for their ids, and a single one has
// no HA configuration.
func TestPair(t *testing.T) {
	alone := testCluster(t, Config{NodeManagers: 1})
	for key := range alone.site() {
		if strings.Contains(key, ".ha.") || strings.Contains(key, "zk") || strings.Contains(key, "failover") || strings.Contains(key, "recovery") || strings.HasSuffix(key, ".rm1") {
			t.Errorf("one ResourceManager has %s", key)
		}
	}
	if got, want := alone.site()["yarn.resourcemanager.webapp.address"], strings.TrimPrefix(alone.ResourceManagerURL(), "http://"); got != want {
		t.Errorf("the one is at %s, not at %s", got, want)
	}
	if n := (&Config{NoYARN: true, ZooKeeper: "127.0.0.1:2181"}).resourceManagers(); n != 1 {
		t.Errorf("without YARN there are ports for %d", n)
	}
	c := testCluster(t, Config{NodeManagers: 1, ZooKeeper: "127.0.0.1:2181"})
	urls := c.ResourceManagerURLs()
	if len(urls) != 2 || urls[0] == urls[1] || c.ResourceManagerURL() != urls[0] {
		t.Fatal(urls, c.ResourceManagerURL())
	}
	site := c.site()
	for key, want := range map[string]string{
		"yarn.resourcemanager.ha.enabled":         "true",
		"yarn.resourcemanager.ha.rm-ids":          "rm1,rm2",
		"yarn.resourcemanager.ha.id":              "", // only in each one's own configuration
		"yarn.resourcemanager.webapp.address":     "",
		"yarn.resourcemanager.webapp.address.rm2": strings.TrimPrefix(urls[1], "http://"),
		"yarn.resourcemanager.recovery.enabled":   "true",
		"hadoop.zk.address":                       "127.0.0.1:2181",
		"hadoop.zk.timeout-ms":                    "10000",
	} {
		if site[key] != want {
			t.Errorf("%s = %q, want %q", key, site[key], want)
		}
	}
}
