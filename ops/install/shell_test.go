package install

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// jarFile makes a small sound jar.
func jarFile(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	w, err := z.Create("META-INF/MANIFEST.MF")
	if err == nil {
		_, err = w.Write([]byte("Manifest-Version: 1.0\n"))
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// javaHome makes a folder that has its version as a JDK does, in a file or in the output of
// bin/java.
func javaHome(t *testing.T, release, answer string) string {
	t.Helper()
	dir := t.TempDir()
	if release != "" {
		put(t, dir, "release", "IMPLEMENTOR=\"x\"\nJAVA_VERSION=\""+release+"\"\nJAVA_VERSION_DATE=\"2025-04-15\"\n")
	}
	if answer != "" {
		put(t, dir, "bin/java", "#!/bin/sh\necho 'openjdk version \""+answer+"\" 2025-04-15' >&2\necho more >&2\n")
		if err := os.Chmod(filepath.Join(dir, "bin/java"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// hadoopShell processes shell profiles as Hadoop's scripts do, in the same order: read them, init,
// class path, then the daemon's options, then finalize. The value of an old variable replaces that
// of the new one.
const hadoopShell = `
hadoop_error() { echo "$*" >&2; }
hadoop_add_profile() { HADOOP_SHELL_PROFILES="${HADOOP_SHELL_PROFILES:-} $1"; }
for file in "$HADOOP_CONF_DIR"/shellprofile.d/*.sh; do . "$file"; done
call() { for i in ${HADOOP_SHELL_PROFILES}; do if declare -F "_${i}_hadoop_$1" >/dev/null; then "_${i}_hadoop_$1"; fi; done; }
call init
call classpath
HADOOP_SUBCMD=$1
new="$2_OPTS" old="HADOOP_${2#*_}_OPTS"
if [ -n "${!old:-}" ]; then printf -v "$new" '%s' "${!old}"; fi
HADOOP_OPTS="${HADOOP_OPTS:-} ${!new:-}"
call finalize
echo "status $?"
echo "opts $HADOOP_OPTS"
echo "classpath ${CLASSPATH:-}"
`

// daemon starts a daemon and returns its options and its messages.
func daemon(t *testing.T, conf, sub, variable, shellOptions string, env ...string) (opts, errs string) {
	t.Helper()
	cmd := exec.Command("bash", "-c", shellOptions+"\n"+hadoopShell, "hadoop", sub, variable)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HADOOP_CONF_DIR=" + conf}, env...)
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s with %q and %q: %v\n%s", sub, shellOptions, env, err, stderr.String())
	}
	status, rest, _ := strings.Cut(out.String(), "\n")
	opts, classPath, _ := strings.Cut(rest, "\n")
	if status != "status 0" || classPath != "classpath \n" {
		t.Errorf("%s with %q: %q, %q", sub, env, status, classPath)
	}
	return strings.TrimSpace(strings.TrimPrefix(opts, "opts")), strings.TrimSpace(stderr.String())
}

func TestShellProfile(t *testing.T) {
	dir := scratch(t)
	o := options(dir)
	o.AgentJar = filepath.Join(t.TempDir(), "penstock-agent.jar")
	o.Socket = "/run/x/agent.sock"
	applied(t, o)
	jarFile(t, o.AgentJar)
	good := "JAVA_HOME=" + javaHome(t, "17.0.15", "")
	dataNode, nodeManager := DataNodeOption(o.AgentJar, o.Socket), NodeManagerOption(o.AgentJar, o.Socket)
	for _, shell := range []string{"", "set -u", "set -e", "set -euo pipefail"} {
		for _, c := range []struct {
			what, sub, variable string
			env                 []string
			opts, says          string
		}{
			{"a DataNode", "datanode", "HDFS_DATANODE", []string{good}, dataNode, ""},
			{"a NodeManager", "nodemanager", "YARN_NODEMANAGER", []string{good}, nodeManager, ""},
			{"with options", "datanode", "HDFS_DATANODE", []string{good, "HDFS_DATANODE_OPTS=-Xmx1g -Da=b"}, "-Xmx1g -Da=b " + dataNode, ""},
			{"by its old name", "datanode", "HDFS_DATANODE", []string{good, "HADOOP_DATANODE_OPTS=-Xmx2g", "HDFS_DATANODE_OPTS=-Xmx1g"}, "-Xmx2g " + dataNode, ""},
			{"another daemon", "namenode", "HDFS_NAMENODE", []string{good}, "", ""},
			{"a shell", "dfs", "HDFS_DFS", []string{good, "HADOOP_OPTS=-Dx"}, "-Dx", ""},
			{"there already", "datanode", "HDFS_DATANODE", []string{good, "HDFS_DATANODE_OPTS=-javaagent:/old/penstock-agent.jar=socket=/y"}, "-javaagent:/old/penstock-agent.jar=socket=/y", ""},
			{"there for all", "datanode", "HDFS_DATANODE", []string{good, "HADOOP_OPTS=" + dataNode}, dataNode, ""},
			{"another agent", "datanode", "HDFS_DATANODE", []string{good, "HDFS_DATANODE_OPTS=-javaagent:/jmx.jar=1"}, "-javaagent:/jmx.jar=1 " + dataNode, ""},
			{"paths of one's own", "datanode", "HDFS_DATANODE", []string{good, "PENSTOCK_SOCKET=/z.sock"}, DataNodeOption(o.AgentJar, "/z.sock"), ""},
			{"Java 16", "datanode", "HDFS_DATANODE", []string{"JAVA_HOME=" + javaHome(t, "16", "")}, dataNode, ""},
			{"Java 11", "datanode", "HDFS_DATANODE", []string{"JAVA_HOME=" + javaHome(t, "11.0.2", "")}, "", "is 11"},
			{"Java 8", "nodemanager", "YARN_NODEMANAGER", []string{"JAVA_HOME=" + javaHome(t, "1.8.0_392", "")}, "", "is 8"},
			{"Java 8, which may have it", "nodemanager", "YARN_NODEMANAGER", []string{"JAVA_HOME=" + javaHome(t, "1.8.0_392", ""), "PENSTOCK_LEAST_JAVA=8"}, nodeManager, ""},
			{"Java 8, and 11 is the oldest", "nodemanager", "YARN_NODEMANAGER", []string{"JAVA_HOME=" + javaHome(t, "1.8.0_392", ""), "PENSTOCK_LEAST_JAVA=11"}, "", "needs Java 11 or later"},
			{"no number", "nodemanager", "YARN_NODEMANAGER", []string{good, "PENSTOCK_LEAST_JAVA=x[$(touch x)]"}, "", "needs Java"},
			{"asked: 21", "datanode", "HDFS_DATANODE", []string{"JAVA_HOME=" + javaHome(t, "", "21-ea")}, dataNode, ""},
			{"asked: 8", "datanode", "HDFS_DATANODE", []string{"JAVA_HOME=" + javaHome(t, "", "1.8.0_392")}, "", "is 8"},
			{"no Java", "datanode", "HDFS_DATANODE", nil, "", "unknown version"},
			{"a broken Java", "datanode", "HDFS_DATANODE", []string{"JAVA_HOME=" + javaHome(t, "", "?")}, "", "unknown version"},
			{"no jar", "datanode", "HDFS_DATANODE", []string{good, "PENSTOCK_AGENT_JAR=/nowhere/penstock-agent.jar"}, "", "cannot read"},
			{"no jar, another", "namenode", "HDFS_NAMENODE", []string{good, "PENSTOCK_AGENT_JAR=/nowhere/penstock-agent.jar"}, "", ""},
			{"a folder", "datanode", "HDFS_DATANODE", []string{good, "PENSTOCK_AGENT_JAR=/"}, "", "cannot read"},
			{"blanks", "datanode", "HDFS_DATANODE", []string{good, "PENSTOCK_SOCKET=/a b"}, "", "characters"},
			{"a command", "datanode", "HDFS_DATANODE", []string{good, "PENSTOCK_AGENT_JAR=$(touch x)"}, "", "characters"},
		} {
			opts, errs := daemon(t, o.HadoopConf, c.sub, c.variable, shell, c.env...)
			if opts != c.opts || (c.says == "") != (errs == "") || !strings.Contains(errs, c.says) {
				t.Errorf("%s, %q: options %q and %q, want %q and %q", c.what, shell, opts, errs, c.opts, c.says)
			}
		}
	}
	whole, err := os.ReadFile(o.AgentJar)
	if err != nil {
		t.Fatal(err)
	}
	for cut, want := range map[int]string{0: "", 2: "", len(whole) / 2: "", len(whole) - 1: "", len(whole): dataNode} {
		if err := os.WriteFile(o.AgentJar, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		if opts, _ := daemon(t, o.HadoopConf, "datanode", "HDFS_DATANODE", "set -eu", good); opts != want {
			t.Errorf("%d of %d bytes of the jar: %q", cut, len(whole), opts)
		}
	}
}

// The oldest Java that loads the agent is set by an option, and kept by later runs without it.
func TestTheLeastJava(t *testing.T) {
	dir := scratch(t)
	o := options(dir)
	o.AgentJar = filepath.Join(t.TempDir(), "penstock-agent.jar")
	jarFile(t, o.AgentJar)
	java8 := "JAVA_HOME=" + javaHome(t, "1.8.0_392", "")
	for _, c := range []struct {
		least  int
		loaded bool
	}{{0, false}, {8, true}, {0, true}, {11, false}, {0, false}, {16, false}, {8, true}} {
		o.LeastJava = c.least
		applied(t, o)
		want := ""
		if c.loaded {
			want = DataNodeOption(o.AgentJar, o.Socket)
		}
		if opts, says := daemon(t, o.HadoopConf, "datanode", "HDFS_DATANODE", "set -eu", java8); opts != want || (says == "") != c.loaded {
			t.Errorf("least %d: options %q, %q", c.least, opts, says)
		}
		if i, err := InspectHadoop(o.HadoopConf); err != nil || len(i.Wrong) > 0 {
			t.Errorf("least %d: %+v, %v", c.least, i, err)
		}
		if r, err := Plan(o, false); err != nil || r.Changes() {
			t.Errorf("least %d: a second run changes something: %v", c.least, err)
		}
	}
	for least, good := range map[int]bool{7: false, 8: true, 16: true, 17: false, -1: false} {
		o.LeastJava = least
		if err := o.Validate(false); (err == nil) != good {
			t.Errorf("least %d: %v", least, err)
		}
	}
}

// A task's options go through the script that YARN writes for a container, which
// puts the command between double quotes for a second bash.
func TestTaskOptionInAContainersScript(t *testing.T) {
	dir := t.TempDir()
	jar := filepath.Join(dir, "penstock-agent.jar")
	jarFile(t, jar)
	const on = "-Dpenstock.file.impl=" + taskFiles
	for _, c := range []struct{ what, classPath, jar, want string }{
		{"as prepared", "$PWD:/conf:/mr/*:" + jar + ":job.jar", jar, on},
		{"last", "/conf:" + jar, jar, on},
		{"no jar on the class path", "/conf:/mr/*", jar, ""},
		{"one like it", "/conf:" + jar + ".old", jar, ""},
		{"no such file", "/conf:" + jar + "x", jar + "x", ""},
		{"no class path", "", jar, ""},
	} {
		words := strings.Split("-Xmx1g "+taskOption(c.jar)+" -Dlast=1", " ") // as the application master splits it
		script := fmt.Sprintf("export CLASSPATH=\"%s\"\nexec /bin/bash -c \"printf '<%%s>' %s \"\n", c.classPath, strings.Join(words, " "))
		out, err := exec.Command("bash", "-e", "-c", script).CombinedOutput()
		want := "<-Xmx1g>"
		if c.want != "" {
			want += "<" + c.want + ">"
		}
		if want += "<-Dlast=1>"; err != nil || string(out) != want {
			t.Errorf("%s: %s (%v), want %s", c.what, out, err, want)
		}
	}
}

// Spark's launch scripts read spark-env.sh with any class path, also an empty one.
func TestSparkEnv(t *testing.T) {
	dir := scratch(t)
	put(t, dir, "spark/spark-env.sh", "A=1")
	applied(t, options(dir))
	for before, want := range map[string]string{"": testJar, "/hadoop/*": "/hadoop/*:" + testJar} {
		cmd := exec.Command("bash", "-euc", `. "$0"; printf %s "$A $SPARK_DIST_CLASSPATH"`, filepath.Join(dir, "spark", "spark-env.sh"))
		if before != "" {
			cmd.Env = append(os.Environ(), "SPARK_DIST_CLASSPATH="+before)
		}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "1 "+want {
			t.Errorf("%q becomes %q (%v)", before, out, err)
		}
	}
}

// A standalone Worker, and a shuffle service by itself, get one agent: after the operator's options, only if the jar can be
// read, and also if the file is read twice or the operator's options have this jar's agent.
func TestSparkWorkersOptions(t *testing.T) {
	for _, variable := range []string{"SPARK_WORKER_OPTS", "SPARK_SHUFFLE_OPTS"} {
		for _, c := range []struct {
			what, before string
			jar          bool
			want         string // %s is the agent's option
		}{
			{"no options", "", true, "%s"},
			{"their options", "-Xmx1g", true, "-Xmx1g %s"},
			{"another agent", "-javaagent:/other.jar", true, "-javaagent:/other.jar %s"},
			{"already there", "-Xmx1g %s", true, "-Xmx1g %s"},
			{"another jar of ours", "-javaagent:/o/penstock-agent-0.9.jar=role=worker", true, "-javaagent:/o/penstock-agent-0.9.jar=role=worker"},
			{"no jar", "-Xmx1g", false, "-Xmx1g"},
		} {
			dir := scratch(t)
			o := options(dir)
			o.AgentJar = filepath.Join(dir, "agent.jar")
			if c.jar {
				jarFile(t, o.AgentJar)
			}
			put(t, dir, "spark/spark-env.sh", "A=1\n")
			o.Force = true // the jar may be on other machines only
			applied(t, o)
			option := WorkerOption(o.AgentJar, o.Socket)
			cmd := exec.Command("bash", "-euc", `. "$0"; . "$0"; printf %s "${`+variable+`:-}"`, filepath.Join(dir, "spark", "spark-env.sh"))
			if c.before != "" {
				cmd.Env = append(os.Environ(), variable+"="+strings.ReplaceAll(c.before, "%s", option))
			}
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != strings.ReplaceAll(c.want, "%s", option) {
				t.Errorf("%s, %s: got %q (%v)", variable, c.what, out, err)
			}
		}
	}
}

// Lines that the operator has pasted are not added again.
func TestPastedLinesOfSparkEnv(t *testing.T) {
	dir := scratch(t)
	o := options(dir)
	first, rest, _ := strings.Cut(sparkEnv(o), "\n")
	put(t, dir, "spark/spark-env.sh", first+"\n")
	applied(t, o)
	got, err := os.ReadFile(filepath.Join(dir, "spark", "spark-env.sh"))
	if err != nil || strings.Count(string(got), first) != 1 || !strings.Contains(string(got), rest) {
		t.Errorf("the file is (%v)\n%s", err, got)
	}
	put(t, dir, "other/spark-env.sh", sparkEnv(o)+"\n")
	file, err := readFile(filepath.Join(dir, "other", "spark-env.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if edits, _, err := sparkTargets(o)[0].change(&file, includes(dir), false); err != nil || len(edits) > 0 {
		t.Errorf("all lines are there, and the edits are %+v (%v)", edits, err)
	}
}
