package install

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func pasteOptions() Options {
	return Options{AgentJar: "/opt/penstock/penstock-agent.jar", Socket: "/run/penstock/agent.sock"}
}

// pasted returns the texts of a tool, by their fields; several texts of one field follow one another.
func pasted(t *testing.T, tool string) map[string]string {
	t.Helper()
	all, err := PasteFor(tool, pasteOptions())
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, p := range all {
		if p.Field == "" || p.Text == "" {
			t.Errorf("%s: %+v", tool, p)
		}
		texts[p.Field] += p.Text + "\n"
	}
	return texts
}

// textOf returns the text of the only field that contains a name.
func textOf(t *testing.T, texts map[string]string, name string) string {
	t.Helper()
	var found []string
	for field := range texts {
		if strings.Contains(field, name) {
			found = append(found, field)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the fields with %q are %q, of %q", name, found, slices.Sorted(maps.Keys(texts)))
	}
	return texts[found[0]]
}

// wanted returns all settings of a file by key.
func wanted(path string) map[string]want {
	o := pasteOptions()
	single, lists := wantsOf(slices.Concat(hadoopTargets(o), sparkTargets(o), tezTargets(o)), path)
	all := map[string]want{}
	for _, w := range append(single, lists...) {
		all[w.key] = w
	}
	return all
}

// sameSettings compares the values in a document with those that an empty folder gets.
func sameSettings(t *testing.T, what string, d *document, path string, without ...string) {
	t.Helper()
	want := wanted(path)
	for _, key := range without {
		delete(want, key)
	}
	if len(want) == 0 || len(d.entries) != len(want) {
		t.Errorf("%s has %d settings, want %d", what, len(d.entries), len(want))
	}
	for key, w := range want {
		if e, ok := d.effective(key); !ok || e.value != w.first() {
			t.Errorf("%s: %s is %q, %v; want %q", what, key, e.value, ok, w.first())
		}
	}
}

func TestPasteForCloudera(t *testing.T) {
	texts := pasted(t, "cloudera")
	for name, path := range map[string]string{"(datanode_config_safety_valve)": "hdfs-site.xml", "(mapreduce_client_config_safety_valve)": "mapred-site.xml",
		"(tez-conf/tez-site.xml_client_config_safety_valve)": "tez-site.xml"} {
		d, err := parseXML([]byte("<configuration>"+textOf(t, texts, name)+"</configuration>"), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sameSettings(t, name, d, path, taskClassPath)
	}
	d, err := parseProperties([]byte(textOf(t, texts, "(spark-conf/spark-defaults.conf_client")))
	if err != nil {
		t.Fatal(err)
	}
	sameSettings(t, "Spark", d, "spark-defaults.conf")
	for name, want := range map[string]string{
		"(datanode_java_opts)":              "-javaagent:/opt/penstock/penstock-agent.jar=socket=/run/penstock/agent.sock\n",
		"(node_manager_java_opts)":          "-javaagent:/opt/penstock/penstock-agent.jar=socket=/run/penstock/agent.sock,role=nodemanager\n",
		"(mapreduce_application_classpath)": "/opt/penstock/penstock-agent.jar\n",
		"(nodemanager_mapred_safety_valve)": "<property><name>mapreduce.shuffle.readahead.bytes</name><value>0</value></property>\n",
		"spark-env.sh":                      sparkEnv(pasteOptions()) + "\n",
	} {
		if got := textOf(t, texts, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Ambari evaluates values as Jinja templates, so braces are quoted in them.
func TestPasteForAmbari(t *testing.T) {
	texts := pasted(t, "ambari")
	evaluate := strings.NewReplacer("{{'{{'}}", "{{", "{{'}}'}}", "}}")
	for field, text := range texts {
		plain := strings.NewReplacer("{{'{{'}}", "", "{{'}}'}}", "").Replace(text)
		for _, opening := range []string{"{{", "{%", "{#"} {
			if strings.Contains(plain, opening) {
				t.Errorf("%s: a template would evaluate %q in\n%s", field, opening, text)
			}
		}
	}
	for name, path := range map[string]string{"Custom hdfs-site": "hdfs-site.xml", "Advanced > Custom mapred-site": "mapred-site.xml", "Configs > Custom spark-defaults": "spark-defaults.conf", "Advanced > Custom tez-site": "tez-site.xml"} {
		d, err := parseProperties([]byte(evaluate.Replace(textOf(t, texts, name))))
		if err != nil {
			t.Fatal(err)
		}
		var lists []string
		for key, w := range wanted(path) {
			if w.add == "" {
				continue
			}
			lists = append(lists, key)
			if got := evaluate.Replace(textOf(t, texts, " > "+key)); got != w.add+"\n" {
				t.Errorf("%s: %q, want %q", key, got, w.add)
			}
		}
		sameSettings(t, name, d, path, lists...)
	}
	if got, want := textOf(t, texts, "spark-env > content"), sparkEnv(pasteOptions())+"\n"; got != want {
		t.Errorf("spark-env.sh: %q, want %q", got, want)
	}
}

func TestPasteForAnsible(t *testing.T) {
	texts := pasted(t, "ansible")
	var all string
	for _, text := range texts {
		all += text
	}
	var v struct {
		Hadoop   string         `yaml:"penstock_hadoop_env"`
		YARN     string         `yaml:"penstock_yarn_env"`
		SparkEnv string         `yaml:"penstock_spark_env"`
		Rest     map[string]any `yaml:",inline"`
	}
	if err := yaml.Unmarshal([]byte(all), &v); err != nil {
		t.Fatalf("%v\n%s", err, all)
	}
	hadoop, yarn := environment(pasteOptions())
	if v.Hadoop != hadoop || v.YARN != yarn || v.SparkEnv != sparkEnv(pasteOptions()) {
		t.Errorf("%+v", v)
	}
	for name, path := range map[string]string{"penstock_hdfs_site": "hdfs-site.xml", "penstock_mapred_site": "mapred-site.xml", "penstock_spark_defaults": "spark-defaults.conf", "penstock_tez_site": "tez-site.xml"} {
		values, _ := v.Rest[name].(map[string]any)
		lists, _ := v.Rest[name+"_lists"].(map[string]any)
		if want := wanted(path); len(values)+len(lists) != len(want) {
			t.Errorf("%s: %v, %v; want %d", name, values, lists, len(want))
		}
		for key, w := range wanted(path) {
			if list, _ := lists[key].(map[string]any); w.add == "" && values[key] != w.set || w.add != "" && (list["append"] != w.add || list["separator"] != w.sep || list["default"] != w.fallback) {
				t.Errorf("%s: %s: %v, %v; want %+v", name, key, values[key], list, w)
			}
		}
	}
}

func TestPasteForRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		tool   string
		change func(*Options)
	}{
		"use ambari, cloudera, ansible": {"puppet", func(*Options) {}},
		"--agent-jar":                   {"ambari", func(o *Options) { o.AgentJar = "agent.jar" }},
		"--socket":                      {"ansible", func(o *Options) { o.Socket = "/run/a b" }},
	} {
		o := pasteOptions()
		c.change(&o)
		if all, err := PasteFor(c.tool, o); err == nil || !strings.Contains(err.Error(), want) || all != nil {
			t.Errorf("%+v: %v, %v; want %q", c, all, err, want)
		}
	}
}

// The lines for hadoop-env.sh add the agent once, to the variable that Hadoop uses, and only if the jar can be read.
func TestLinesForTheEnvironment(t *testing.T) {
	jar := filepath.Join(t.TempDir(), "penstock-agent.jar")
	option := DataNodeOption(jar, "/run/s")
	for _, c := range []struct {
		before, want string
		noJar        bool
	}{
		{"", "[][ " + option + "]", false},
		{"NEW=-Xmx1g", "[][-Xmx1g " + option + "]", false},
		{"OLD=-Xmx1g", "[-Xmx1g " + option + "][]", false},
		{"OLD=-Xmx1g; NEW=-Xmx2g", "[-Xmx1g " + option + "][-Xmx2g]", false},
		{"NEW=-Xmx1g", "[][-Xmx1g]", true},
	} {
		if err := os.RemoveAll(jar); err != nil {
			t.Fatal(err)
		}
		if !c.noJar {
			if err := os.WriteFile(jar, []byte("PK"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		lines := addOption(jar, "NEW", "OLD", option)
		script := strings.Join([]string{c.before, lines, lines, `echo "[${OLD:-}][${NEW:-}]"`}, "\n")
		if out, err := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != c.want {
			t.Errorf("%+v: %v, %s", c, err, out)
		}
	}
}
