package install

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Tools returns the names of the tools that PasteFor knows.
func Tools() []string { return []string{"ambari", "cloudera", "ansible"} }

// Paste is a text for a field of a tool that writes the configuration folders itself.
type Paste struct {
	Field string `json:"field"`          // where the text goes
	Note  string `json:"note,omitempty"` // instructions for people
	Text  string `json:"text"`
}

// PasteFor returns the settings that Apply would write, as texts for the fields of a tool. It reads no folder, so it
// does not know the present values of the fields: a setting that extends a list comes with a note. PasteFor uses only
// the options AgentJar and Socket. It returns an error for a path that is not valid or for an unknown tool.
func PasteFor(tool string, o Options) ([]Paste, error) {
	if err := o.validatePaths(); err != nil {
		return nil, err
	}
	switch tool {
	case "ambari":
		return ambari(o), nil
	case "cloudera":
		return cloudera(o), nil
	case "ansible":
		return ansible(o)
	}
	return nil, fmt.Errorf("--for %q: use %s", tool, strings.Join(Tools(), ", "))
}

// separator returns the name of the separator of a list.
func (w want) separator() string {
	if w.sep == " " {
		return "a space"
	}
	return fmt.Sprintf("%q", w.sep)
}

// extends returns the note about a list that is pasted with its default.
func (w want) extends() string {
	return fmt.Sprintf("If %s has a value, keep that value, and append %s and only: %s", w.key, w.separator(), w.add)
}

// wantsOf returns the settings of a file: those with one value, and those that extend a list.
func wantsOf(targets []target, path string) (single, lists []want) {
	for _, t := range targets {
		for _, w := range t.wants {
			switch {
			case t.path != path:
			case w.add != "":
				lists = append(lists, w)
			default:
				single = append(single, w)
			}
		}
	}
	return single, lists
}

// sparkEnv returns the lines for spark-env.sh.
func sparkEnv(o Options) string {
	for _, t := range sparkTargets(o) {
		if t.path == "spark-env.sh" {
			return t.whole
		}
	}
	return ""
}

// addOption returns lines of a shell script that add a JVM option to a variable, unless the jar cannot be read or
// the variable has the option. Hadoop uses the variable old instead of name if it is set.
func addOption(jar, name, old, option string) string {
	return fmt.Sprintf(`# Penstock's agent
if [ -r %[1]s ]; then
  if [ -n "${%[3]s:-}" ]; then
    case "$%[3]s" in *%[1]s*) ;; *) export %[3]s="$%[3]s %[4]s" ;; esac
  else
    case "${%[2]s:-}" in *%[1]s*) ;; *) export %[2]s="${%[2]s:-} %[4]s" ;; esac
  fi
fi`, jar, name, old, option)
}

const (
	noJar   = "The JVM does not start where the jar is missing: put the jar on every machine first."
	sparkOn = "Executors do not start where the jar is missing: put the jar on every machine first."
)

// environment returns the texts for hadoop-env.sh and yarn-env.sh.
func environment(o Options) (hadoop, yarn string) {
	return addOption(o.AgentJar, "HDFS_DATANODE_OPTS", "HADOOP_DATANODE_OPTS", DataNodeOption(o.AgentJar, o.Socket)),
		addOption(o.AgentJar, "YARN_NODEMANAGER_OPTS", "HADOOP_NODEMANAGER_OPTS", NodeManagerOption(o.AgentJar, o.Socket))
}

// ambari returns the texts for the fields of Ambari 2.7 and later. Ambari evaluates values as Jinja templates.
func ambari(o Options) []Paste {
	jinja := func(value string) string {
		return strings.NewReplacer("{{", "{{'{{'}}", "}}", "{{'}}'}}").Replace(value)
	}
	const spark = "Spark (2 or 3) > Configs > "
	hadoop, yarn := environment(o)
	all := []Paste{
		{Field: "HDFS > Configs > Advanced > Advanced hadoop-env > hadoop-env template", Note: "Append at the end.", Text: hadoop},
		{Field: "YARN > Configs > Advanced > Advanced yarn-env > yarn-env template", Note: "Append at the end.", Text: yarn},
	}
	add := func(targets []target, path, custom, advanced, note string) {
		single, lists := wantsOf(targets, path)
		var lines []string
		for _, w := range single {
			lines = append(lines, w.key+"="+jinja(w.first()))
		}
		all = append(all, Paste{Field: custom, Note: strings.TrimSpace("Add Property, bulk mode. " + note), Text: strings.Join(lines, "\n")})
		for _, w := range lists {
			note := fmt.Sprintf("Append it to the present value, after %s. If there is no value, the value is: %s", w.separator(), jinja(w.first()))
			all = append(all, Paste{Field: advanced + " > " + w.key, Note: note, Text: jinja(w.add)})
		}
	}
	add(hadoopTargets(o), "hdfs-site.xml", "HDFS > Configs > Advanced > Custom hdfs-site", "", "")
	add(hadoopTargets(o), "mapred-site.xml", "MapReduce2 > Configs > Advanced > Custom mapred-site", "MapReduce2 > Configs > Advanced > Advanced mapred-site, or Custom mapred-site", "")
	add(tezTargets(o), "tez-site.xml", "Tez > Configs > Advanced > Custom tez-site", "Tez > Configs > Advanced > Advanced tez-site, or Custom tez-site", "")
	add(sparkTargets(o), "spark-defaults.conf", spark+"Custom spark-defaults", spark+"Advanced spark-defaults, or Custom spark-defaults", sparkOn)
	return append(all, Paste{Field: spark + "Advanced spark-env > content", Note: "Append at the end.", Text: sparkEnv(o)})
}

// cloudera returns the texts for the fields of Cloudera Manager 6 and 7, with the names that its API has for them.
func cloudera(o Options) []Paste {
	const valve = " Advanced Configuration Snippet (Safety Valve) for "
	all := []Paste{
		{Field: "HDFS > Java Configuration Options for DataNode (datanode_java_opts)", Note: "Append after a space. " + noJar, Text: DataNodeOption(o.AgentJar, o.Socket)},
		{Field: "YARN > Java Configuration Options for NodeManager (node_manager_java_opts)", Note: "Append after a space. " + noJar, Text: NodeManagerOption(o.AgentJar, o.Socket)},
	}
	add := func(field string, wants ...want) {
		var text bytes.Buffer
		var notes []string
		for _, w := range wants {
			fmt.Fprintf(&text, "<property><name>%s</name><value>", w.key)
			xml.EscapeText(&text, []byte(w.first())) // a Buffer does not fail
			text.WriteString("</value></property>\n")
			if w.add != "" {
				notes = append(notes, w.extends())
			}
		}
		all = append(all, Paste{Field: field, Note: strings.Join(notes, "\n"), Text: strings.TrimSpace(text.String())})
	}
	const client = "YARN > MapReduce Client" + valve + "mapred-site.xml (mapreduce_client_config_safety_valve)"
	readahead, _ := wantsOf(hadoopTargets(o), "hdfs-site.xml")
	add("HDFS > DataNode"+valve+"hdfs-site.xml (datanode_config_safety_valve)", readahead...)
	tasks, taskLists := wantsOf(hadoopTargets(o), "mapred-site.xml")
	add(client, tasks...)
	for _, w := range tasks {
		if w.key == shuffleReadahead {
			add("YARN > NodeManager"+valve+"mapred-site.xml (nodemanager_mapred_safety_valve)", w)
		}
	}
	for _, w := range taskLists {
		if w.key == taskClassPath { // a field of its own, with a default that differs from Hadoop's
			all = append(all, Paste{Field: "YARN > MR Application Classpath (mapreduce_application_classpath)", Note: "Add it as one more entry.", Text: w.add})
			continue
		}
		add(client, w)
	}
	tez, tezLists := wantsOf(tezTargets(o), "tez-site.xml")
	add("Tez > Tez Client"+valve+"tez-conf/tez-site.xml (tez-conf/tez-site.xml_client_config_safety_valve)", append(tez, tezLists...)...)
	single, lists := wantsOf(sparkTargets(o), "spark-defaults.conf")
	var lines []string
	notes := []string{sparkOn}
	for _, w := range append(single, lists...) {
		lines = append(lines, w.key+"="+w.first())
		if w.add != "" {
			notes = append(notes, w.extends())
		}
	}
	return append(all,
		Paste{Field: "Spark > Spark Client" + valve + "spark-conf/spark-defaults.conf (spark-conf/spark-defaults.conf_client_config_safety_valve)", Note: strings.Join(notes, "\n"), Text: strings.Join(lines, "\n")},
		Paste{Field: "Spark > Spark Client" + valve + "spark-conf/spark-env.sh (spark-conf/spark-env.sh_client_config_safety_valve)", Text: sparkEnv(o)})
}

// ansible returns variables for a role that writes the folders. All together they are a YAML document. Its texts
// are marked as unsafe, so that Ansible does not evaluate them as Jinja templates.
func ansible(o Options) ([]Paste, error) {
	text := func(value string) *yaml.Node {
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!unsafe", Value: value, Style: yaml.TaggedStyle | yaml.SingleQuotedStyle}
		if strings.Contains(value, "\n") {
			n.Style = yaml.TaggedStyle | yaml.LiteralStyle
		}
		return n
	}
	plain := func(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }
	mapping := func(pairs ...*yaml.Node) *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Content: pairs} }
	var all []Paste
	add := func(field, note, name string, value *yaml.Node) error {
		b, err := yaml.Marshal(mapping(plain(name), value))
		if err != nil {
			return fmt.Errorf("variable %s: %w", name, err)
		}
		all = append(all, Paste{Field: field, Note: note, Text: strings.TrimRight(string(b), "\n")})
		return nil
	}
	hadoop, yarn := environment(o)
	if err := add("hadoop-env.sh", "Append at the end.", "penstock_hadoop_env", text(hadoop)); err != nil {
		return nil, err
	}
	if err := add("yarn-env.sh, or hadoop-env.sh", "Append at the end.", "penstock_yarn_env", text(yarn)); err != nil {
		return nil, err
	}
	for _, file := range []struct {
		path, name, note string
		targets          []target
	}{
		{"hdfs-site.xml", "penstock_hdfs_site", "", hadoopTargets(o)},
		{"mapred-site.xml", "penstock_mapred_site", "", hadoopTargets(o)},
		{"tez-site.xml", "penstock_tez_site", "", tezTargets(o)},
		{"spark-defaults.conf", "penstock_spark_defaults", sparkOn, sparkTargets(o)},
	} {
		single, lists := wantsOf(file.targets, file.path)
		var values, extended []*yaml.Node
		for _, w := range single {
			values = append(values, plain(w.key), text(w.first()))
		}
		if err := add(file.path, file.note, file.name, mapping(values...)); err != nil {
			return nil, err
		}
		for _, w := range lists {
			extended = append(extended, plain(w.key), mapping(plain("append"), text(w.add), plain("separator"), text(w.sep), plain("default"), text(w.fallback)))
		}
		if len(extended) == 0 {
			continue
		}
		note := "Each value is: the present value, or else the default, then the separator if that is not empty, then what to append."
		if err := add(file.path, note, file.name+"_lists", mapping(extended...)); err != nil {
			return nil, err
		}
	}
	return all, add("spark-env.sh", "Append at the end.", "penstock_spark_env", text(sparkEnv(o)))
}
