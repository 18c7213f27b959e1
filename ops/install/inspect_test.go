package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Later changes of our settings are reported; changes of others are not.
func TestInspection(t *testing.T) {
	jar := filepath.Join(t.TempDir(), "penstock-agent.jar")
	put(t, filepath.Dir(jar), filepath.Base(jar), "PK")
	edit := func(name, old, new string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !strings.Contains(string(data), old) {
				t.Fatalf("%s has no %q (%v)", name, old, err)
			}
			put(t, dir, name, strings.Replace(string(data), old, new, 1))
		}
	}
	write := func(name, content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { put(t, dir, name, content) }
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const theirs = "<property><name>b</name><value>2</value></property>"
	for name, c := range map[string]struct {
		change func(*testing.T, string)
		hadoop string // what is wrong there; empty: nothing
		spark  string
	}{
		"nothing":             {change: func(*testing.T, string) {}},
		"their own":           {change: edit("hadoop/mapred-site.xml", "</configuration>", theirs+"</configuration>")},
		"another socket":      {change: edit("hadoop/mapred-site.xml", testSocket, "/run/other.sock"), hadoop: `has penstock.socket as "/run/other.sock"`},
		"the file system":     {change: edit("hadoop/mapred-site.xml", "${penstock.file.impl}", defaultFiles), hadoop: "has fs.file.impl as"},
		"readahead":           {change: edit("hadoop/mapred-site.xml", ifileReadahead, "another"), hadoop: "lacks " + ifileReadahead},
		"the class path":      {change: edit("hadoop/mapred-site.xml", ","+jar, ""), hadoop: "has mapreduce.application.classpath without " + jar},
		"the file":            {change: remove("hadoop/mapred-site.xml"), hadoop: "mapred-site.xml is not there"},
		"the profile":         {change: edit("hadoop/shellprofile.d/penstock.sh", "return 0", "return 1"), hadoop: "penstock.sh is not what"},
		"behind mapred-site":  {change: write("hadoop/yarn-site.xml", "<configuration><property><name>fs.file.impl</name><value>a.B</value></property></configuration>"), hadoop: "would win"},
		"in front of it":      {change: write("hadoop/hdfs-site.xml", "<configuration><property><name>fs.file.impl</name><value>a.B</value></property><property><name>"+blockReadahead+"</name><value>0</value></property></configuration>")},
		"a DataNode's":        {change: edit("hadoop/hdfs-site.xml", blockReadahead, "another"), hadoop: "lacks " + blockReadahead},
		"no XML":              {change: write("hadoop/mapred-site.xml", "<configuration>"), hadoop: "error"},
		"Spark's plug-in":     {change: edit("spark/spark-defaults.conf", shuffle, "a.B"), spark: `has spark.shuffle.sort.io.plugin.class as "a.B"`},
		"Spark's environment": {change: write("spark/spark-env.sh", ""), spark: "lacks the line export SPARK_DIST_CLASSPATH"},
		"an older state":      {change: edit("hadoop/"+StateFile, `"agent_jar"`, `"jar"`), hadoop: "does not say with which jar"},
		"the jar": {change: func(t *testing.T, _ string) {
			if err := os.Rename(jar, jar+"~"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.Rename(jar+"~", jar); err != nil {
					t.Error(err)
				}
			})
		}, hadoop: "is not there", spark: "is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := scratch(t)
			o := options(dir)
			o.AgentJar = jar
			if i, err := InspectHadoop(o.HadoopConf); err != nil || i.Prepared {
				t.Errorf("before: %+v, %v", i, err)
			}
			applied(t, o)
			c.change(t, dir)
			for _, side := range []struct {
				want    string
				inspect func(string) (*Inspection, error)
				folder  string
			}{{c.hadoop, InspectHadoop, o.HadoopConf}, {c.spark, InspectSpark, o.SparkConf}} {
				i, err := side.inspect(side.folder)
				if side.want == "error" {
					if err == nil {
						t.Errorf("%+v", i)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if wrong := strings.Join(i.Wrong, "\n"); !i.Prepared || len(i.Wrong) > 1 || !strings.Contains(wrong, side.want) || (wrong == "") != (side.want == "") {
					t.Errorf("%s: %q, want %q", side.folder, wrong, side.want)
				}
			}
		})
	}
}
