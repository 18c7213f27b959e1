package packages

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/bare"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/netns"
	"penstock/lab/process"
	"penstock/node/status"
	"penstock/ops/doctor"
)

// Files of Hadoop on the bare machine. Hadoop's scripts are in its archive only, which the laboratory does not fetch. So
// the script hdfs stands in for them: it reads the shell profiles as they do, and starts the same class.
const (
	hadoopConf = "/etc/hadoop/conf"
	coreSite   = `<configuration>
  <property><name>fs.defaultFS</name><value>hdfs://127.0.0.1:8020</value></property>
</configuration>
`
	hdfsSite = `<configuration>
  <property><name>dfs.namenode.name.dir</name><value>file:///var/lib/hadoop/nn</value></property>
  <property><name>dfs.datanode.data.dir</name><value>file:///data/1/dfs/data</value></property>
  <property><name>dfs.replication</name><value>1</value></property>
</configuration>
`
	mapredSite = `<configuration>
</configuration>
`
	log4j = `log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
`
	hdfs = `#!/bin/bash
set -eu
export HADOOP_CONF_DIR=` + hadoopConf + ` JAVA_HOME=/usr/lib/jvm/default-java HADOOP_SUBCMD=$1 HDFS_DATANODE_OPTS=
shift
profiles=
hadoop_error() { echo "$*" >&2; }
hadoop_add_profile() { profiles="$profiles $1"; }
for file in "$HADOOP_CONF_DIR"/shellprofile.d/*.sh; do if [ -e "$file" ]; then . "$file"; fi; done
for p in $profiles; do "_${p}_hadoop_init"; "_${p}_hadoop_finalize"; done
opts=
case $HADOOP_SUBCMD in
  namenode) class=org.apache.hadoop.hdfs.server.namenode.NameNode ;;
  datanode) class=org.apache.hadoop.hdfs.server.datanode.DataNode opts=$HDFS_DATANODE_OPTS ;;
  dfs) class=org.apache.hadoop.fs.FsShell ;;
esac
exec java -Xmx256m --add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED $opts -cp "$HADOOP_CONF_DIR:/opt/hadoop/lib/*" $class "$@"
`
)

// nodeSettings is /etc/penstock/node.yaml as an operator edits it: the lines of the package's file that begin with "#",
// with the values of this node.
var nodeSettings = strings.NewReplacer(
	"#socket_group: hadoop", "socket_group: hadoop",
	"#users: [hdfs, yarn]", "users: [hdfs]",
	"#data_dirs: [/data/1/dfs/data]", "data_dirs: [/data/1/dfs/data]",
)

// bareMachine is a bare Debian machine with a modelled disk at /data/1, the packages of Penstock in /srv/penstock, and
// Hadoop's jars.
type bareMachine struct {
	*testing.T
	machine *bare.Machine
	steps   []step
}

// step is a command of the installation, or several of one purpose.
type step struct {
	what, commands string
	took           time.Duration
}

func newBareMachine(t *testing.T, packages string) *bareMachine {
	t.Helper()
	if err := disk.Available(); err != nil {
		t.Fatalf("this test needs root and a modelled disk: %v", err)
	}
	cache, err := filepath.Abs("../../.cache")
	fixture.Must(t, err)
	root, err := bare.Fetch(t.Context(), cache, t.Logf)
	fixture.Must(t, err)
	lib, err := hadoop.Fetch(t.Context(), cache, "", t.Logf)
	fixture.Must(t, err)
	dir := t.TempDir()
	book, err := ledger.Open(dir)
	fixture.Must(t, err)
	t.Cleanup(func() { fixture.Check(t, book.Close()) })
	network, err := netns.New(book, 1)
	fixture.Must(t, err)
	t.Cleanup(func() { fixture.Check(t, network.Close()) })
	d, err := disk.Start(t.Context(), disk.Options{Name: "data", RunDir: dir, Size: 4 << 30})
	fixture.Must(t, err)
	t.Cleanup(func() { fixture.Check(t, d.Stop()) })
	m, err := bare.Start(t.Context(), bare.Options{Book: book, Dir: filepath.Join(dir, "bare"), Root: root, Network: network.Machines[0].Path(),
		Folders: map[string]string{"/data/1": d.Mount(), "/opt/hadoop/lib": lib, "/srv/penstock": packages}})
	fixture.Must(t, err)
	t.Cleanup(m.Stop)
	return &bareMachine{T: t, machine: m}
}

// must runs a script, which must succeed, and returns what it prints.
func (m *bareMachine) must(script string) string {
	m.Helper()
	out, err := m.machine.Run(m.Context(), script)
	if err != nil {
		m.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// write writes a file on the machine.
func (m *bareMachine) write(path, text string, mode int) {
	m.Helper()
	m.must(fmt.Sprintf("mkdir -p %s\ncat > %s <<'END'\n%sEND\nchmod %o %s", filepath.Dir(path), path, text, mode, path))
}

// step does a step and notes how long it took.
func (m *bareMachine) step(what, commands string, do func()) {
	m.Helper()
	begin := time.Now()
	do()
	m.steps = append(m.steps, step{what, commands, time.Since(begin)})
}

// command is a step that runs commands to their end. It returns what they print.
func (m *bareMachine) command(what, commands string) (out string) {
	m.Helper()
	m.step(what, commands, func() { out = m.must(commands) })
	m.Logf("%s\n%s", commands, out)
	return out
}

// table returns the steps with their times.
func (m *bareMachine) table() string {
	var b strings.Builder
	sum := time.Duration(0)
	fmt.Fprintf(&b, "| step | commands | s |\n|---|---|---|\n")
	for _, s := range m.steps {
		sum += s.took
		fmt.Fprintf(&b, "| %s | `%s` | %.1f |\n", s.what, strings.Join(strings.Split(s.commands, "\n"), "`, `"), s.took.Seconds())
	}
	fmt.Fprintf(&b, "| all | %d steps | %.1f |\n", len(m.steps), sum.Seconds())
	return b.String()
}

// status returns the daemon's document.
func (m *bareMachine) status() (*status.Document, error) {
	out, err := m.machine.Run(m.Context(), "penstock status --json 2>/dev/null") // Run returns both outputs
	doc, bad := status.Parse([]byte(out))
	if bad != nil {
		return nil, fmt.Errorf("penstock status --json: %w: %v: %s", bad, err, out)
	}
	return doc, nil // an exit code of 1 means that something needs attention
}

// await waits until the daemon's document has what a step needs.
func (m *bareMachine) await(what string, holds func(*status.Document) bool) {
	m.Helper()
	var last error
	fixture.Eventually(m, what, func() bool {
		doc, err := m.status()
		last = err
		return err == nil && holds(doc)
	}, func() string { return fmt.Sprint(last) })
}

// TestFromABareMachine: a bare Debian machine becomes a governed DataNode by the steps of docs/operate/packages.md and
// install.md. It prints the commands, their times, and what the doctor says. There is no systemd, so the command of the
// unit runs with the unit's capabilities.
func TestFromABareMachine(t *testing.T) {
	const bytes = 64 << 20
	deb, _ := build(t, "1.0.0")
	m := newBareMachine(t, filepath.Dir(deb))

	m.command("Java", "dpkg -i "+bare.Later+"/*.deb")
	m.command("users and folders of Hadoop", "groupadd --system hadoop\nuseradd --system --gid hadoop --home-dir / hdfs\n"+
		"mkdir -p /data/1/dfs/data /var/lib/hadoop\nchown hdfs:hadoop /data/1/dfs/data /var/lib/hadoop")
	for path, text := range map[string]string{"core-site.xml": coreSite, "hdfs-site.xml": hdfsSite, "mapred-site.xml": mapredSite, "log4j.properties": log4j} {
		m.write(filepath.Join(hadoopConf, path), text, 0o644)
	}
	m.write("/usr/local/bin/hdfs", hdfs, 0o755)
	m.must("cd " + hadoopConf + " && mkdir -p webapps/hdfs webapps/datanode webapps/static") // Maven's jars lack these folders
	const asHDFS = "runuser -u hdfs -- hdfs "
	m.step("a NameNode without Penstock", asHDFS+"namenode", func() {
		m.must(asHDFS + "namenode -format -nonInteractive")
		m.start("namenode", asHDFS+"namenode")
		fixture.Eventually(t, "the NameNode answers", func() bool {
			_, err := m.machine.Run(t.Context(), "exec 3<>/dev/tcp/127.0.0.1/8020")
			return err == nil
		})
	})
	hadoopSteps := len(m.steps)

	m.command("package", "cd /srv/penstock\nsha256sum -c SHA256SUMS\ndpkg -i penstock_*_amd64.deb")
	m.step("settings", "editor /etc/penstock/node.yaml", func() {
		m.write("/etc/penstock/node.yaml", nodeSettings.Replace(m.must("cat /etc/penstock/node.yaml")), 0o644)
	})
	m.command("check", "penstock node run --config /etc/penstock/node.yaml --check")
	m.step("daemon", "systemctl enable --now penstock-node", func() {
		m.start("penstock-node", m.unitCommand("penstock-node.service"))
		m.await("the daemon answers", func(*status.Document) bool { return true })
	})
	prepare := "penstock install --hadoop-conf " + hadoopConf + " --agent-jar /opt/penstock/penstock-agent.jar --socket /run/penstock/agent.sock"
	m.command("what Hadoop's configuration needs", prepare)
	m.command("Hadoop's configuration", prepare+" --apply")
	m.step("DataNode", "systemctl restart hadoop-hdfs-datanode", func() {
		m.start("datanode", asHDFS+"datanode")
		m.await("the DataNode's agent is connected", func(doc *status.Document) bool {
			return len(doc.Agents) == 1 && doc.Agents[0].Role == "datanode"
		})
	})
	before, err := m.status()
	fixture.Must(t, err)
	m.step("a file of 64 MiB", "hdfs dfs -put FILE /", func() {
		m.must(fmt.Sprintf("head -c %d /dev/urandom > /tmp/file\n%sdfs -put /tmp/file /", bytes, asHDFS))
		m.await("the file's bytes are counted", func(doc *status.Document) bool {
			return fixture.StreamedBetween(before, doc, "clients", "persistent").Written >= bytes
		})
	})
	m.step("status and doctor", "penstock status\npenstock doctor", func() {
		for _, c := range []string{"penstock status", "penstock doctor"} {
			out, err := m.machine.Run(t.Context(), c) // an exit code of 1 means that something needs attention
			t.Logf("%s: %v\n%s", c, err, out)
		}
	})
	out, err := m.machine.Run(t.Context(), "penstock doctor --json 2>/dev/null")
	var r doctor.Report
	if bad := json.Unmarshal([]byte(out), &r); bad != nil {
		t.Fatalf("penstock doctor --json: %v, %v\n%s", bad, err, out)
	}
	got := map[string]doctor.Verdict{}
	for _, s := range r.Results {
		if s.Verdict == doctor.Fail && s.Check != "dirty-limits" { // the real machine's own
			t.Errorf("doctor: %+v", s)
		}
		got[s.Check] = s.Verdict
	}
	for _, check := range []string{"daemon", "datanode", "agent", "socket", "directories", "rights", "identity", "installed", "java", "hadoop"} {
		if got[check] != doctor.OK {
			t.Errorf("doctor: %s: %q", check, got[check])
		}
	}

	t.Logf("from a bare Debian machine to a governed DataNode; the first %d steps are Hadoop's:\n%s", hadoopSteps, m.table())
}

// start starts a server, whose log is shown if the test fails.
func (m *bareMachine) start(name, script string) {
	m.Helper()
	p, err := m.machine.Start(name, "exec "+script)
	fixture.Must(m, err)
	m.Cleanup(func() {
		if m.Failed() {
			m.Logf("the end of %s's log:\n%s", name, process.Tail(p.Log(), 60))
		}
	})
}

// unitCommand returns the command of an installed unit with the unit's rights and folder, which systemd would give it.
func (m *bareMachine) unitCommand(name string) string {
	m.Helper()
	settings := service(m.T, name, m.must("cat /usr/lib/systemd/system/"+name))
	one := map[string]string{}
	for _, s := range settings {
		one[s[0]] = s[1]
	}
	m.must("mkdir -p -m 755 /run/" + one["RuntimeDirectory"])
	// Root of a container may not raise the limit of descriptors above its own hard limit.
	return fmt.Sprintf("bash -c 'ulimit -n %[2]s || ulimit -Sn \"$(ulimit -Hn)\"; exec setpriv --bounding-set %[1]s --no-new-privs %[3]s'",
		boundingSet(m.T, settings), one["LimitNOFILE"], one["ExecStart"])
}
