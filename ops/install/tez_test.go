package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func tezOptions(dir string) Options {
	return Options{TezConf: filepath.Join(dir, "tez"), AgentJar: testJar, Socket: testSocket}
}

// Tez's settings are written and removed. Nothing depends on the jar on this machine: a task without the jar uses Hadoop's own class.
func TestTez(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "tez/tez-site.xml", "<configuration>\n<property><name>tez.cluster.additional.classpath.prefix</name><value>/a/*</value></property>\n</configuration>\n")
	before := snapshot(t, dir)
	applied(t, tezOptions(dir))
	text, err := os.ReadFile(filepath.Join(dir, "tez", "tez-site.xml"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := parse(hadoopXML, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"fs.file.impl":                             "${penstock.file.impl}",
		"penstock.file.impl":                       defaultFiles,
		"penstock.socket":                          testSocket,
		"tez.runtime.ifile.readahead":              "false",
		"tez.cluster.additional.classpath.prefix":  "/a/*:" + testJar,
		"tez.task.launch.cluster-default.cmd-opts": defaultTezOptions + " " + taskOption(testJar),
	} {
		if e, _ := doc.effective(key); e.value != want {
			t.Errorf("%s = %q, want %q", key, e.value, want)
		}
	}
	if i, err := InspectTez(filepath.Join(dir, "tez")); err != nil || !i.Prepared || len(i.Wrong) != 1 || !strings.Contains(i.Wrong[0], testJar) { // there is no jar
		t.Errorf("%+v, %v", i, err)
	}
	put(t, dir, "tez/tez-site.xml", strings.Replace(string(text), testSocket, "/run/other.sock", 1))
	if i, err := InspectTez(filepath.Join(dir, "tez")); err != nil || len(i.Wrong) != 2 || !strings.Contains(i.Wrong[1], `has penstock.socket as "/run/other.sock"`) {
		t.Errorf("%+v, %v", i, err)
	}
	put(t, dir, "tez/tez-site.xml", string(text))
	if r := applied(t, tezOptions(dir)); r.Changes() {
		t.Errorf("a second run changes %+v", r.Files)
	}
	if _, err := Remove(tezOptions(dir)); err != nil {
		t.Fatal(err)
	}
	same(t, "removed", snapshot(t, dir), before)
}

func TestTezRefuses(t *testing.T) {
	dir := scratch(t)
	put(t, dir, "tez/tez-site.xml", "<configuration/>")
	another := tezOptions(dir)
	another.TezConf = filepath.Join(dir, "spark")
	if _, err := Plan(another, false); err == nil || !strings.Contains(err.Error(), "not a configuration folder of Tez") {
		t.Errorf("a folder of Spark: %v", err)
	}
	both := tezOptions(dir)
	both.HadoopConf = both.TezConf
	if _, err := Plan(both, false); err == nil || !strings.Contains(err.Error(), "both Hadoop and Tez") {
		t.Errorf("one folder for both: %v", err)
	}
	final := tezOptions(dir)
	final.HadoopConf = filepath.Join(dir, "hadoop")
	put(t, dir, "hadoop/core-site.xml", "<configuration><property><name>fs.file.impl</name><value>a.B</value><final>true</final></property></configuration>")
	if _, err := Plan(final, false); err == nil || !strings.Contains(err.Error(), "which would win") {
		t.Errorf("a final setting: %v", err)
	}
}

// A folder that was prepared for Hadoop is not changed as one of Tez: Hadoop would lose its settings.
func TestTezRefusesHadoopsFolder(t *testing.T) {
	dir := scratch(t)
	one := Options{HadoopConf: filepath.Join(dir, "hadoop"), AgentJar: testJar, Socket: testSocket}
	put(t, dir, "hadoop/tez-site.xml", "<configuration/>")
	applied(t, one)
	one.TezConf, one.HadoopConf = one.HadoopConf, ""
	before := snapshot(t, dir)
	for _, remove := range []bool{false, true} {
		if _, err := Plan(one, remove); err == nil || !strings.Contains(err.Error(), "prepared as the configuration folder of Hadoop") {
			t.Errorf("remove %t: %v", remove, err)
		}
	}
	same(t, "refused", snapshot(t, dir), before)
}

// A list in Hadoop's files that Tez's file would hide is a conflict.
func TestTezReportsHiddenLists(t *testing.T) {
	dir := scratch(t)
	put(t, dir, "tez/tez-site.xml", "<configuration/>")
	put(t, dir, "hadoop/core-site.xml", "<configuration><property><name>tez.cluster.additional.classpath.prefix</name><value>/a/*</value></property></configuration>")
	o := tezOptions(dir)
	o.HadoopConf = filepath.Join(dir, "hadoop")
	if _, err := Plan(o, false); err == nil || !strings.Contains(err.Error(), "tez.cluster.additional.classpath.prefix") {
		t.Errorf("no conflict: %v", err)
	}
}
