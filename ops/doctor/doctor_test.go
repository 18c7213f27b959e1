package doctor

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"penstock/core/reserve"
	"penstock/node/kernel"
	"penstock/node/status"
	"penstock/ops/install"
)

// wellNode returns the facts of a node without faults.
func wellNode() *Facts {
	return &Facts{
		Build: "v1", Address: "127.0.0.1:9707", Before: 100, After: 200,
		Status: &status.Document{
			Version: 1, Build: "v1", PID: 50, MonotonicNS: 150, Mode: "enforce",
			KillSwitch: status.Switch{File: "/run/p/s.off"}, Socket: "/run/p/s", Users: []uint32{0, 10},
			Weights: status.Weights{File: "/etc/w.yaml", Rules: 3, Default: 1}, Heartbeat: status.Heartbeat{Alive: true},
			Identity: status.Identity{Mode: "verify"},
			Agents:   []status.Agent{{PID: 70, UID: 10, Directories: []string{"/data/1"}}, {PID: 80, UID: 10, Role: "nodemanager"}},
			Devices: []status.Device{{
				Name: "sdb", Directories: []string{"/data/1"}, Rotational: true, Answered: true, SlowFactor: 1, Profiled: true,
				Kernel:       status.Kernel{Counted: true, Scheduler: "mq-deadline", Requests: 64, ReadaheadKB: 128, RequestKB: 1280},
				QuantumBytes: 2 << 20, DepthMax: 12, DirtyBound: 32 << 20,
			}},
		},
		DataNode: DataNode{
			URL: "http://127.0.0.1:9864", Version: "3.4.2", Java: "17", PID: 70,
			Agent: &Agent{State: "woven", WovenMethods: make([]string, 11), Connected: true, Mode: "enforce"},
			Conf:  map[string]string{"dfs.client.read.shortcircuit": "false", "dfs.datanode.readahead.bytes": "4194304"},
		},
		NodeManager: NodeManager{
			URL: "http://127.0.0.1:8042", PID: 80,
			Agent: &Agent{State: "woven", WovenMethods: make([]string, 2), Connected: true, Mode: "enforce"},
			Conf:  map[string]string{"yarn.nodemanager.aux-services": "spark_shuffle, mapreduce_shuffle"},
		},
		Folders: []Folder{{Path: "/etc/hadoop/conf", Found: &install.Inspection{
			Folder: "/etc/hadoop/conf", Prepared: true, AgentJar: "/opt/penstock-agent.jar", Socket: "/run/p/s",
		}}},
		Daemon: &Process{PID: 50, UID: 10, GID: 10, Capabilities: 1<<19 | 1<<2},
		Node:   &Process{PID: 70, UID: 10, GID: 10, Groups: []uint32{20}},
		Socket: []Path{
			{Name: "/", Mode: os.ModeDir | 0o755}, {Name: "/run/p", Mode: os.ModeDir | 0o750, GID: 20}, {Name: "/run/p/s", Mode: os.ModeSocket | 0o660, GID: 20},
		},
		Directories:   []Directory{{Name: "/data/1", Owner: 10}},
		KernelRelease: "6.18.5",
		Memory:        Memory{Available: 20 << 30, BackgroundRatio: 10, DirtyRatio: 20},
		Synchronised:  true,
	}
}

func TestAWellNode(t *testing.T) {
	r := Judge(wellNode(), nil)
	if r.Failures+r.Warnings != 0 || len(r.Results) < len(checks) {
		t.Errorf("%s", r.Text())
	}
}

// The doctor reports how foreign I/O is attributed, and never warns about it.
func TestForeignWatch(t *testing.T) {
	for want, watch := range map[string]status.ForeignWatch{
		"by device only":                                {},
		"by process and cgroup":                         {On: true},
		"latencies by owner are not known: CAP_BPF and": {Error: "CAP_BPF and CAP_PERFMON are needed"},
	} {
		f := wellNode()
		f.Status.ForeignWatch = watch
		r := Judge(f, nil)
		if text := r.Text(); r.Warnings+r.Failures != 0 || !strings.Contains(text, want) {
			t.Errorf("%+v:\n%s", watch, text)
		}
	}
}

// The doctor says why a directory is not governed, and what to do: for most reasons, no restart of the DataNode.
func TestDirectoriesThatAreNotGoverned(t *testing.T) {
	for cause, c := range map[status.Cause][2]string{
		status.Hangs:     {"/data/2: its disk does not answer", "governed without a restart"},
		status.Absent:    {"open /data/2: no such file or directory", "governed without a restart"},
		status.NotListed: {"/data/2: it is not in the list", "restart the daemon. The DataNode needs no restart"},
		status.Other:     {"/data/2 belongs to user 7", "looks again"},
		"":               {"no agent has named it", "restart it"},
	} {
		f := wellNode()
		f.Directories = append(f.Directories, Directory{Name: "/data/2", Owner: 10})
		if cause != "" {
			f.Status.Agents[0].Ungoverned = []status.Ungoverned{{Directory: "/data/2/", Cause: cause, Reason: c[0]}}
		}
		r := Judge(f, nil)
		if text := r.Text(); r.Failures != 1 || !strings.Contains(text, c[0]) || !strings.Contains(text, c[1]) {
			t.Errorf("%q:\n%s", cause, text)
		}
	}
}

// The doctor reports which waits are known, and never warns about it.
func TestWaits(t *testing.T) {
	for want, p := range map[string]status.Processes{
		"disks and CPUs are known": {BlockDelayCounted: true},
		"sysctl turns them on":     {Note: "not counted: sysctl turns them on"},
		"incomplete: CAP_NET":      {Error: "CAP_NET_ADMIN is missing", Note: "not counted"},
	} {
		f := wellNode()
		f.Status.Processes = p
		r := Judge(f, nil)
		if text := r.Text(); r.Warnings+r.Failures != 0 || !strings.Contains(text, want) {
			t.Errorf("%+v:\n%s", p, text)
		}
	}
}

// The doctor warns of holds that are not in force, and says nothing where the settings have no control.
func TestControl(t *testing.T) {
	mechanisms := []status.Mechanism{{Name: "gate", Available: true}, {Name: "freezer", Why: "not named"}}
	for name, c := range map[string]struct {
		control  status.Control
		warnings int
		want     string
	}{
		"none":            {status.Control{Mode: "off"}, 0, ""},
		"all is well":     {status.Control{Mode: "enforce", Mechanisms: mechanisms, Holds: []status.Hold{{Flow: "process:a", Mechanism: "gate", Held: true}}}, 0, "1 holds by the policy; available: gate; missing: freezer: not named"},
		"writes are not":  {status.Control{Mode: "enforce", Holds: []status.Hold{{Flow: "process:a", Mechanism: "gate (reads)", Gap: "writes are not held", Held: true}}}, 0, "; by gate (reads), writes are not held"},
		"nothing can":     {status.Control{Mode: "enforce", Mechanisms: mechanisms, Holds: []status.Hold{{Flow: "process:a", Where: "sda"}}}, 1, "nothing can hold process:a on sda"},
		"it failed":       {status.Control{Mode: "enforce", Holds: []status.Hold{{Flow: "process:a", Where: "sda", Mechanism: "gate", Error: "no such folder"}}}, 1, "process:a on sda is not held: no such folder"},
		"another error":   {status.Control{Mode: "observe", Error: "the gate has ended"}, 1, "the gate has ended"},
		"joining":         {status.Control{Mode: "enforce", Joining: &status.Joining{Connections: 3, Joined: 2}}, 0, "2 of 3 connections between containers are joined"},
		"a limit ends it": {status.Control{Mode: "enforce", Joining: &status.Joining{Limited: "veth1 has a limit"}}, 1, "veth1 has a limit"},
		"joining fails":   {status.Control{Mode: "enforce", Joining: &status.Joining{Error: "no such key"}}, 1, "no such key"},
		"no permissions":  {status.Control{Mode: "observe"}, 0, "available: none; missing: none"},
	} {
		f := wellNode()
		f.Status.Control = c.control
		r := Judge(f, nil)
		if text := r.Text(); r.Warnings != c.warnings || r.Failures != 0 || !strings.Contains(text, c.want) {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

func TestPromises(t *testing.T) {
	promise := func(state reserve.State, part float64, kept, broken int64) status.Flow {
		return status.Flow{Name: "a", Reserve: status.Reserve{Rate: reserve.Rate{Part: 0.4}, State: state.String(), Granted: part, Fits: part, KeptNS: kept, BrokenNS: broken}}
	}
	for name, c := range map[string]struct {
		flows    []status.Flow
		warnings int
		want     string
	}{
		"none":    {[]status.Flow{{Name: "a"}}, 0, "no flow has a guaranteed rate"},
		"kept":    {[]status.Flow{promise(reserve.Admitted, 1, 99, 1), promise(reserve.Unused, 0, 0, 0)}, 0, "guaranteed rates: 2, none broken"},
		"broken":  {[]status.Flow{promise(reserve.Admitted, 1, 98, 2)}, 1, "the guaranteed rate of a (40 % of the device's time) was kept for 98.0 %"},
		"queued":  {[]status.Flow{promise(reserve.Queued, 0.25, 0, 0)}, 1, "is queued: there is room for 25 % of it"},
		"reduced": {[]status.Flow{promise(reserve.Reduced, 0.5, 1, 0)}, 1, "is reduced to 50 %"},
		"both":    {[]status.Flow{promise(reserve.Reduced, 0, 0, 1)}, 2, "kept for 0.0 %"},
	} {
		f := wellNode()
		f.Status.Devices[0].Flows = c.flows
		r := Judge(f, nil)
		if text := r.Text(); r.Warnings != c.warnings || r.Failures != 0 || !strings.Contains(text, c.want) {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

func TestBrokenNodes(t *testing.T) {
	dev := func(f *Facts) *status.Device { return &f.Status.Devices[0] }
	apart := func(f *Facts) { f.Status.Agents, f.DataNode.Agent.Connected = f.Status.Agents[1:], false }
	for name, c := range map[string]struct {
		breakIt func(f *Facts)
		want    string // check verdict, of all that are not ok
	}{
		"no daemon":              {func(f *Facts) { f.Status, f.StatusErr = nil, errors.New("refused") }, "daemon fail"},
		"another version":        {func(f *Facts) { f.Status.Build = "v2" }, "daemon warn"},
		"no heartbeat":           {func(f *Facts) { f.Status.Heartbeat = status.Heartbeat{Stalled: []string{"sdb"}} }, "heartbeat fail"},
		"kill switch":            {func(f *Facts) { f.Status.KillSwitch.On, f.Status.Mode = true, "off" }, "kill-switch warn"},
		"off":                    {func(f *Facts) { f.Status.Mode = "off" }, "mode warn"},
		"observe":                {func(f *Facts) { f.Status.Mode = "observe" }, ""},
		"weights refused":        {func(f *Facts) { f.Status.Weights.Error = "line 3" }, "weights warn"},
		"no weights":             {func(f *Facts) { f.Status.Weights.File = "" }, "weights warn"},
		"no DataNode":            {func(f *Facts) { f.DataNode = DataNode{Err: errors.New("refused")} }, "datanode fail"},
		"no agent":               {func(f *Facts) { f.DataNode.Agent, f.Status.Agents = nil, f.Status.Agents[1:] }, "agent fail"},
		"agent out":              {func(f *Facts) { f.DataNode.Agent.State = "out: symbols missing" }, "agent fail"},
		"agent apart":            {apart, "agent fail"},
		"another daemon's":       {func(f *Facts) { f.Status.Agents[0].PID = 71 }, "agent fail"},
		"agent let through":      {func(f *Facts) { f.DataNode.Agent.GateBackstops = 1 }, "agent warn"},
		"socket gone":            {func(f *Facts) { apart(f); f.SocketErr = errors.New("no such file") }, "agent fail, socket fail"},
		"user refused":           {func(f *Facts) { apart(f); f.Status.Users = []uint32{0} }, "agent fail, socket fail"},
		"not in the group":       {func(f *Facts) { apart(f); f.Node.Groups = nil; f.Socket[1].Mode |= 1 }, "agent fail, socket fail"},
		"folder shut":            {func(f *Facts) { apart(f); f.Socket[1].GID = 21 }, "agent fail, socket fail"},
		"directory missing":      {func(f *Facts) { f.Directories = append(f.Directories, Directory{Name: "/data/2", Owner: 10}) }, "directories fail"},
		"other owner":            {func(f *Facts) { f.Directories[0].Owner = 11 }, "rights fail"},
		"read and search only":   {func(f *Facts) { f.Directories[0].Owner = 11; f.Daemon.Capabilities = 1<<19 | 1<<2 }, "rights fail"},
		"search and owner":       {func(f *Facts) { f.Directories[0].Owner = 11; f.Daemon.Capabilities = 1<<19 | 1<<2 | 1<<3 }, ""},
		"override":               {func(f *Facts) { f.Directories[0].Owner = 11; f.Daemon.Capabilities = 1<<19 | 1<<1 }, ""},
		"open errors":            {func(f *Facts) { f.Status.SocketCounts.OpenErrors = 1 }, "rights warn"},
		"not on the node":        {func(f *Facts) { f.Daemon, f.DaemonErr = nil, errors.New("no such process") }, "rights warn"},
		"no look at processes":   {func(f *Facts) { f.Daemon.Capabilities = 1 << 2 }, "identity warn"},
		"no list of descriptors": {func(f *Facts) { f.Daemon.Capabilities = 1 << 19 }, "identity warn"},
		"no capabilities":        {func(f *Facts) { f.Daemon.Capabilities = 0 }, "identity warn"},
		"strict without rights":  {func(f *Facts) { f.Daemon.Capabilities, f.Status.Identity.Mode = 0, "strict" }, "identity warn"},
		"strict with rights":     {func(f *Facts) { f.Status.Identity.Mode = "strict" }, ""},
		"override for search":    {func(f *Facts) { f.Daemon.Capabilities = 1<<19 | 1<<1 }, ""},
		"neighbouring rights":    {func(f *Facts) { f.Daemon.Capabilities = ^uint64(1<<19 | 1<<2 | 1<<1) }, "identity warn"},
		"trust without rights":   {func(f *Facts) { f.Daemon.Capabilities, f.Status.Identity.Mode = 0, "trust" }, ""},
		"short-circuit":          {shortCircuit, "short-circuit warn"},
		"short-circuit, held": {func(f *Facts) {
			shortCircuit(f)
			f.Status.Control.Holds = []status.Hold{{Flow: "service:hbase", Mechanism: "gate", Held: true}, {Flow: "service:hbase", Mechanism: "gate", Held: true}}
		}, ""},
		"short-circuit, one disk held": {func(f *Facts) {
			shortCircuit(f)
			f.Status.Control.Holds = []status.Hold{{Flow: "service:hbase", Mechanism: "gate", Held: true}, {Flow: "service:hbase"}}
		}, "short-circuit warn"},
		"short-circuit, a connection held": {func(f *Facts) {
			shortCircuit(f)
			f.Status.Control.Holds = []status.Hold{{Flow: "service:hbase", Mechanism: "pacing", Held: true}}
		}, "short-circuit warn"},
		"short-circuit, not held": {func(f *Facts) {
			shortCircuit(f)
			f.Status.Control.Holds = []status.Hold{{Flow: "service:hbase"}, {Flow: "process:a", Held: true}}
		}, "short-circuit warn"},
		"short-circuit, no path": {func(f *Facts) { f.DataNode.Conf["dfs.client.read.shortcircuit"] = "true" }, ""},
		"no configuration":       {func(f *Facts) { f.DataNode.ConfErr = errors.New("forbidden") }, "short-circuit warn"},
		"reads ahead":            {func(f *Facts) { f.DataNode.Native = true }, "readahead warn"},
		"may read ahead":         {func(f *Facts) { f.DataNode.NativeErr = errors.New("no right") }, "readahead warn"},
		"reads nothing ahead": {func(f *Facts) {
			f.DataNode.Native, f.DataNode.Conf["dfs.datanode.readahead.bytes"] = true, "0"
		}, ""},
		"not prepared":          {func(f *Facts) { f.Folders[0].Found.Prepared = false }, ""},
		"not prepared as asked": {func(f *Facts) { f.Folders[0].Found.Prepared, f.Folders[0].Asked = false, true }, "installed warn"},
		"no such folder":        {func(f *Facts) { f.Folders[0] = Folder{Asked: true, Err: errors.New("no such folder")} }, "installed warn"},
		"not as installed": {func(f *Facts) {
			f.Folders[0].Found.Wrong = []string{"lacks fs.file.impl", "lacks penstock.socket"}
		}, "installed warn, installed warn"},
		"another socket":         {func(f *Facts) { f.Folders[0].Found.Socket = "/run/p/t" }, "installed warn"},
		"no NodeManager":         {func(f *Facts) { f.NodeManager = NodeManager{Err: errors.New("refused")} }, ""},
		"no NodeManager there":   {func(f *Facts) { f.NodeManager = NodeManager{Err: errors.New("refused"), Asked: true} }, "nodemanager warn"},
		"NodeManager bare":       {func(f *Facts) { f.NodeManager.Agent = nil }, "nodemanager warn"},
		"NodeManager not ours":   {func(f *Facts) { f.NodeManager.Agent, f.Folders = nil, nil }, ""},
		"NodeManager's out":      {func(f *Facts) { f.NodeManager.Agent.State = "out: symbols missing" }, "nodemanager warn"},
		"NodeManager apart":      {func(f *Facts) { f.NodeManager.Agent.Connected = false }, "nodemanager warn"},
		"NodeManager elsewhere":  {func(f *Facts) { f.NodeManager.PID = 81 }, "nodemanager warn"},
		"left out":               {func(f *Facts) { f.DataNode.Agent.LeftOut = []string{"writes: x"} }, "agent fail"},
		"NodeManager left out":   {func(f *Facts) { f.NodeManager.Agent.LeftOut = []string{"map outputs: x"} }, "nodemanager warn"},
		"executors' jar":         {func(f *Facts) { f.ExecutorJars = []Jar{{Path: "/p.jar", For: "/etc/spark/conf"}} }, ""},
		"executors without":      {func(f *Facts) { f.ExecutorJars = []Jar{{Problem: "/p.jar is not there"}} }, "executors fail"},
		"executors shut out":     {func(f *Facts) { f.ExecutorJars = []Jar{{Path: "/o/p.jar", Closed: "/o"}} }, "executors warn"},
		"no auxiliary service":   {func(f *Facts) { f.NodeManager.Conf["yarn.nodemanager.aux-services"] = "spark_shuffle" }, "shuffle warn"},
		"another shuffle":        {shuffleSetting(".class", "com.example.Shuffle"), "shuffle warn"},
		"Hadoop's own shuffle":   {shuffleSetting(".class", "org.apache.hadoop.mapred.ShuffleHandler"), ""},
		"a shuffle apart":        {shuffleSetting(".classpath", "/x.jar"), "shuffle warn"},
		"no transferTo":          {func(f *Facts) { f.NodeManager.Conf["mapreduce.shuffle.transferTo.allowed"] = "false" }, "shuffle warn"},
		"shuffle unknown":        {func(f *Facts) { f.NodeManager.ConfErr = errors.New("forbidden") }, "shuffle warn"},
		"Worker bare":            {func(f *Facts) { f.Workers = []Worker{{PID: 90, Serves: true}} }, "worker warn"},
		"Worker apart":           {func(f *Facts) { f.Workers = []Worker{{PID: 90, Serves: true, HasAgent: true}} }, "worker warn"},
		"Worker without service": {func(f *Facts) { f.Workers = []Worker{{PID: 90}, {PID: 91, HasAgent: true}} }, ""},
		"Worker connected":       {func(f *Facts) { f.Workers = []Worker{{PID: 80, Serves: true, HasAgent: true, Service: true}} }, ""},
		"silent":                 {func(f *Facts) { dev(f).Answered = false }, "devices fail"},
		"stuck":                  {func(f *Facts) { dev(f).Stuck = true }, "devices fail"},
		"slow":                   {func(f *Facts) { dev(f).SlowFactor = 10 }, "devices warn"},
		"errors":                 {func(f *Facts) { dev(f).Errors = 1 }, "devices warn"},
		"no block device":        {func(f *Facts) { dev(f).Kernel = status.Kernel{Requests: -1, ReadaheadKB: -1, RequestKB: -1} }, "devices warn"},
		"none":                   {func(f *Facts) { dev(f).Kernel.Scheduler = "none" }, "scheduler warn"},
		"none on flash":          {func(f *Facts) { dev(f).Kernel.Scheduler, dev(f).Rotational = "none", false }, ""},
		"bfq":                    {func(f *Facts) { dev(f).Kernel.Scheduler = "bfq" }, "scheduler warn"},
		"kyber":                  {func(f *Facts) { dev(f).Kernel.Scheduler = "kyber" }, "scheduler warn"},
		"unknown scheduler":      {func(f *Facts) { dev(f).Kernel.Scheduler = "" }, "scheduler warn"},
		"short queue":            {func(f *Facts) { dev(f).Kernel.Requests = 23 }, "queue warn"},
		"just long enough":       {func(f *Facts) { dev(f).Kernel.Requests = 24 }, ""},
		"long readahead":         {func(f *Facts) { dev(f).Kernel.ReadaheadKB = 2049 }, "queue warn"},
		"readahead of a quantum": {func(f *Facts) { dev(f).Kernel.ReadaheadKB = 2048 }, ""},
		"no profile":             {func(f *Facts) { dev(f).Profiled = false }, "profile warn"},
		"low background":         {func(f *Facts) { f.Memory.BackgroundBytes = 32 << 20 }, "dirty-limits warn"},
		"background above":       {func(f *Facts) { f.Memory.BackgroundBytes = 32<<20 + 1 }, ""},
		"low dirty limit":        {func(f *Facts) { f.Memory.DirtyBytes = 32 << 20 }, "dirty-limits fail"},
		"little memory":          {func(f *Facts) { f.Memory.Available = 300 << 20 }, "dirty-limits warn"},
		"no openat2":             {func(f *Facts) { f.Status.MissingCalls = without("openat2") }, ""},
		"no cachestat":           {func(f *Facts) { f.Status.MissingCalls = without("openat2", "cachestat") }, "kernel warn"},
		"no pidfd, no control":   {func(f *Facts) { f.Status.MissingCalls = without("pidfd_getfd", "pidfd_open") }, ""},
		"no pidfd": {func(f *Facts) {
			f.Status.MissingCalls, f.Status.Control.Mode = without("pidfd_getfd"), "enforce"
		}, "kernel warn"},
		"a call of a later daemon": {func(f *Facts) { f.Status.MissingCalls = without("openat9") }, "kernel warn"},
		"an earlier daemon": {func(f *Facts) {
			f.Status.MissingCalls, f.MissingCalls = nil, without("cachestat")
		}, "kernel warn"},
		"only the doctor is filtered": {func(f *Facts) {
			f.Status.MissingCalls, f.MissingCalls = []status.MissingCall{}, without("cachestat")
		}, ""},
		"Java 15":            {func(f *Facts) { f.DataNode.Java = "15" }, "java fail"},
		"Java 16":            {func(f *Facts) { f.DataNode.Java = "16" }, ""},
		"Java 8":             {func(f *Facts) { f.DataNode.Java = "1.8" }, "java fail"},
		"Java 8 by loopback": {func(f *Facts) { f.DataNode.Java, f.Status.Loopback = "1.8", byLoopback() }, ""},
		"Java 7 by loopback": {func(f *Facts) { f.DataNode.Java, f.Status.Loopback = "1.7", byLoopback() }, "java fail"},
		"loopback in use":    {func(f *Facts) { f.Status.Loopback = status.Loopback{Setting: "127.0.0.1:9708"} }, "loopback warn"},
		"loopback unknown":   {func(f *Facts) { f.Status.Loopback, f.Status.Loopback.NoProcess = byLoopback(), 1 }, "loopback warn"},
		"loopback without rights": {func(f *Facts) {
			f.Status.Loopback, f.Status.Identity.Mode, f.Daemon.Capabilities = byLoopback(), "trust", f.Daemon.Capabilities&^capSysPtrace
		}, "loopback warn"},
		"Hadoop 3.0":            {func(f *Facts) { f.DataNode.Version = "3.0.3" }, "hadoop warn"},
		"Hadoop 3.1.4":          {func(f *Facts) { f.DataNode.Version = "3.1.4" }, ""},
		"Hadoop 3.4.1":          {func(f *Facts) { f.DataNode.Version = "3.4.1" }, ""},
		"clock":                 {func(f *Facts) { f.Synchronised = false }, "clock warn"},
		"other machine's clock": {func(f *Facts) { f.Status.MonotonicNS = 99 }, "clock warn"},
	} {
		f := wellNode()
		c.breakIt(f)
		r := Judge(f, nil)
		var got []string
		for _, s := range r.Results {
			if s.Verdict != OK {
				got = append(got, s.Check+" "+string(s.Verdict))
				if s.Meaning == "" || s.Remedy == "" {
					t.Errorf("%s: %s does not say what it means and what to do", name, s.Check)
				}
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, want %q\n%s", name, got, c.want, r.Text())
		}
	}
}

func shortCircuit(f *Facts) {
	f.DataNode.Conf = map[string]string{"dfs.client.read.shortcircuit": "true", "dfs.domain.socket.path": "/run/dn"}
}

func shuffleSetting(name, value string) func(*Facts) {
	return func(f *Facts) { f.NodeManager.Conf["yarn.nodemanager.aux-services.mapreduce_shuffle"+name] = value }
}

func TestIgnoredChecksOnlyWarn(t *testing.T) {
	f := wellNode()
	f.DataNode.Java = "1.7"
	if r := Judge(f, []string{"java"}); r.Failures != 0 || r.Warnings != 1 {
		t.Errorf("%s", r.Text())
	}
}

func TestTheReferenceHasEveryCheck(t *testing.T) {
	manual, err := os.ReadFile("../../docs/reference/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		if !strings.Contains(string(manual), "| `"+name+"` |") {
			t.Errorf("docs/reference/doctor.md says nothing of %s", name)
		}
	}
	if names := Names(); len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
		t.Error("two checks have one name")
	}
}

// byLoopback is the state of a daemon that listens for agents on JVMs without Unix sockets.
func byLoopback() status.Loopback {
	return status.Loopback{Setting: "127.0.0.1:0", Listen: "127.0.0.1:40001", File: "/run/p/s.port", Agents: 2}
}

// TestTheFolderOfThePortFile: the doctor finds what agents refuse.
func TestTheFolderOfThePortFile(t *testing.T) {
	path := func(mode fs.FileMode, uid uint32) Path { return Path{Name: "/x", Mode: mode | fs.ModeDir, UID: uid} }
	socket := Path{Name: "/x/s", Mode: 0o660 | fs.ModeSocket}
	for name, c := range map[string]struct {
		paths []Path
		open  bool
	}{
		"root's":               {[]Path{path(0o755, 0), path(0o750, 0), socket}, false},
		"the daemon's":         {[]Path{path(0o755, 0), path(0o750, 7), socket}, false},
		"below its own":        {[]Path{path(0o755, 0), path(0o755, 7), path(0o750, 7), socket}, false},
		"below another's":      {[]Path{path(0o755, 0), path(0o755, 8), path(0o750, 7), socket}, true},
		"below a user's":       {[]Path{path(0o755, 0), path(0o755, 8), path(0o750, 0), socket}, true},
		"below /tmp":           {[]Path{path(0o777|fs.ModeSticky, 0), path(0o755, 7), socket}, false},
		"below an open folder": {[]Path{path(0o777, 0), path(0o755, 7), socket}, true},
		"in /tmp":              {[]Path{path(0o777|fs.ModeSticky, 0), socket}, true},
		"a group's":            {[]Path{path(0o755, 0), path(0o770, 7), socket}, true},
		"not known":            {nil, false},
	} {
		f := &Facts{Socket: c.paths}
		if why := f.openFolder(); (why != "") != c.open {
			t.Errorf("%s: %q", name, why)
		}
	}
	f := wellNode()
	f.Status.Loopback = byLoopback()
	f.Socket = []Path{path(0o755, 0), path(0o777, 0), socket}
	if r := checkLoopback(f); len(r) != 1 || r[0].Verdict != Warn || !strings.Contains(r[0].Found, "others may change /x") {
		t.Errorf("%+v", r)
	}
}

// without returns what a daemon reports that misses the calls.
func without(names ...string) (calls []status.MissingCall) {
	for _, name := range names {
		calls = append(calls, status.MissingCall{Name: name, Why: "the kernel lacks the system call " + name})
	}
	return calls
}

// Each call that the daemon may report is known here.
func TestEachMissingCallHasAMeaning(t *testing.T) {
	for _, c := range kernel.Calls() {
		if lost[c.String()].meaning == "" {
			t.Errorf("the doctor does not know what is lost without %v", c)
		}
	}
}
