package install

import (
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var update = flag.Bool("update", false, "write testdata's golden folders")

const testJar, testSocket = "/opt/penstock/penstock-agent.jar", "/run/penstock/agent.sock"

func options(dir string) Options {
	return Options{HadoopConf: filepath.Join(dir, "hadoop"), SparkConf: filepath.Join(dir, "spark"),
		AgentJar: testJar, Socket: testSocket, Force: true} // Force: the jar is not on this machine
}

// snapshot returns a folder's names, permissions and contents.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		what := info.Mode().String() + "\n"
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += string(data)
		}
		all[rel] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func same(t interface{ Errorf(string, ...any) }, what string, got, want map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: %s is\n%s\nand should be\n%s", what, name, got[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is there and should not be", what, name)
		}
	}
}

// copied returns a copy of a folder that a test may change, without git's placeholders.
func copied(t testing.TB, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(dir, ".keep"))
	for _, conf := range []string{"hadoop", "spark"} { // git keeps no empty folders
		if err := os.MkdirAll(filepath.Join(dir, conf), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func put(t testing.TB, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// scratch returns an empty pair of folders.
func scratch(t testing.TB) string {
	dir := t.TempDir()
	put(t, dir, "hadoop/core-site.xml", "<configuration>\n</configuration>\n")
	put(t, dir, "spark/log4j2.properties", "")
	return dir
}

func applied(t testing.TB, o Options) *Report {
	t.Helper()
	r, err := Apply(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each folder becomes equal to the expected one, a second run changes nothing, and removal restores
// it to the byte.
func TestGoldenFolders(t *testing.T) {
	cases, err := filepath.Glob("testdata/*/before")
	if err != nil || len(cases) < 8 {
		t.Fatalf("%d golden folders (%v)", len(cases), err)
	}
	for _, before := range cases {
		t.Run(filepath.Base(filepath.Dir(before)), func(t *testing.T) {
			dir := copied(t, before)
			original := snapshot(t, dir)
			plan, err := Plan(options(dir), false)
			if err != nil {
				t.Fatal(err)
			}
			same(t, "a plan", snapshot(t, dir), original)
			r := applied(t, options(dir))
			for i := range r.Files {
				if r.Files[i] != plan.Files[i] {
					t.Errorf("done was\n%+v\nand planned\n%+v", r.Files[i], plan.Files[i])
				}
			}
			after := filepath.Join(filepath.Dir(before), "after")
			golden(t, dir, after)
			first := snapshot(t, dir)
			if r := applied(t, options(dir)); r.Changes() || r.Done {
				t.Errorf("a second time it does %+v", r)
			}
			same(t, "a second time", snapshot(t, dir), first)
			if _, err := Remove(options(dir)); err != nil {
				t.Fatal(err)
			}
			same(t, "removed", snapshot(t, dir), original)
			if r, err := Remove(options(dir)); err != nil || r.Changes() || r.Done {
				t.Errorf("a second removal does %+v (%v)", r, err)
			}
		})
	}
}

// golden compares the folder's files with those in after. It leaves out state files and the
// profile, which are the same everywhere.
func golden(t *testing.T, dir, after string) {
	t.Helper()
	got := map[string]string{}
	for name, what := range snapshot(t, dir) {
		_, content, _ := strings.Cut(what, "\n")
		if what[0] == '-' && !strings.HasSuffix(name, StateFile) && !strings.HasSuffix(name, "penstock.sh") {
			got[name] = content
		}
	}
	if *update {
		if err := os.RemoveAll(after); err != nil {
			t.Fatal(err)
		}
		for name, content := range got {
			put(t, after, name, content)
		}
	}
	want := map[string]string{}
	for name, what := range snapshot(t, after) {
		if _, content, _ := strings.Cut(what, "\n"); what[0] == '-' {
			want[name] = content
		}
	}
	same(t, "golden", got, want)
}

// Text that others write elsewhere in the files stays when our part is removed, also text after our
// part.
func TestOthersEditsStay(t *testing.T) {
	dir := scratch(t)
	put(t, dir, "hadoop/mapred-site.xml", "<configuration>\n  <property><name>a</name><value>1</value></property>\n</configuration>\n")
	put(t, dir, "spark/spark-defaults.conf", "spark.driver.extraClassPath /a.jar") // no end of line
	put(t, dir, "spark/spark-env.sh", "export A=1")
	applied(t, options(dir))
	edit := func(name, old, new string) {
		t.Helper()
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil || strings.Count(string(data), old) != 1 {
			t.Fatalf("%q is not once in %s (%v)", old, data, err)
		}
		put(t, dir, name, strings.Replace(string(data), old, new, 1))
	}
	const theirs = "  <property><name>b</name><value>2</value></property>\n"
	edit("hadoop/mapred-site.xml", "<value>1</value>", "<value>one</value>")
	edit("hadoop/mapred-site.xml", "</configuration>", theirs+"</configuration>")
	for name, more := range map[string]string{"spark/spark-defaults.conf": "spark.new 1\n", "spark/spark-env.sh": "export B=2\n"} {
		data, _ := os.ReadFile(filepath.Join(dir, name))
		put(t, dir, name, string(data)+more)
	}
	if r := applied(t, options(dir)); r.Changes() {
		t.Errorf("others' edits are not ours to change: %+v", r)
	}
	if _, err := Remove(options(dir)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"hadoop/mapred-site.xml":    "<configuration>\n  <property><name>a</name><value>one</value></property>\n" + theirs + "</configuration>\n",
		"spark/spark-defaults.conf": "spark.driver.extraClassPath /a.jar\nspark.new 1\n",
		"spark/spark-env.sh":        "export A=1\nexport B=2\n",
	} {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s is\n%s\nand should be\n%s", name, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "hadoop", "shellprofile.d")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the profile's folder is still there (%v)", err)
	}
}

// Our own lines, changed by hand, are a conflict: their meaning must not be guessed.
func TestHandsOnOurLines(t *testing.T) {
	for name, change := range map[string][2]string{
		"hadoop/mapred-site.xml":             {testSocket, "/run/other.sock"},
		"hadoop/shellprofile.d/penstock.sh":  {"return 0", "return 1"},
		"spark/spark-defaults.conf":          {"role=executor", "role=executor,debug"},
		"spark/spark-env.sh":                 {"penstock-agent.jar", "agent.jar"},
		"hadoop/mapred-site.xml#application": {"mapreduce/lib/*,", "mapreduce/lib/*,/mine/*,"},
	} {
		t.Run(name, func(t *testing.T) {
			name, _, _ := strings.Cut(name, "#")
			dir := scratch(t)
			applied(t, options(dir))
			data, _ := os.ReadFile(filepath.Join(dir, name))
			if !strings.Contains(string(data), change[0]) {
				t.Fatalf("%s has no %q:\n%s", name, change[0], data)
			}
			put(t, dir, name, strings.Replace(string(data), change[0], change[1], 1))
			changed := snapshot(t, dir)
			o := options(dir)
			o.Force = false
			for what, run := range map[string]func(Options) (*Report, error){"apply": Apply, "remove": Remove} {
				r, err := run(o)
				if !errors.Is(err, ErrConflict) || !strings.Contains(strings.Join(r.Conflicts, " "), filepath.Base(name)) {
					t.Errorf("%s: %v, %q", what, err, r.Conflicts)
				}
			}
			same(t, "refused", snapshot(t, dir), changed)
			r, err := Remove(options(dir))
			if err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "left as it is") {
				t.Errorf("forced: %v, %q", err, r.Notes)
			}
			if got := snapshot(t, dir)[name]; got != changed[name] {
				t.Errorf("the changed file became\n%s", got)
			}
			if _, ok := snapshot(t, dir)[filepath.Join(filepath.Dir(strings.Replace(name, "/shellprofile.d", "", 1)), StateFile)]; ok {
				t.Error("the state file is still there")
			}
		})
	}
}

func TestConflicts(t *testing.T) {
	const property = "<configuration><property><name>%</name><value>%%</value></property></configuration>"
	site := func(key, value string) string {
		return strings.NewReplacer("%%", value, "%", key).Replace(property)
	}
	for _, c := range []struct {
		name, file, content, says string
		hard                      bool
	}{
		{name: "task files", file: "hadoop/mapred-site.xml", content: site("fs.file.impl", "com.example.Files"), says: `fs.file.impl is "com.example.Files"`},
		{name: "in core-site", file: "hadoop/core-site.xml", content: site("fs.file.impl", "com.example.Files"), says: `core-site.xml sets fs.file.impl`},
		{name: "behind mapred-site", file: "hadoop/yarn-site.xml", content: site("fs.file.impl", "com.example.Files"), says: "would win", hard: true},
		{name: "final in core-site", file: "hadoop/core-site.xml", content: strings.Replace(site("fs.file.impl", "com.example.Files"), "</property>", "<final>true</final></property>", 1), says: "would win", hard: true},
		{name: "HDFS", file: "spark/spark-defaults.conf", content: "spark.hadoop.fs.hdfs.impl com.example.Fs\n", says: `fs.hdfs.impl is "com.example.Fs"`},
		{name: "HDFS in hdfs-site", file: "hadoop/hdfs-site.xml", content: site("fs.hdfs.impl", "com.example.Fs"), says: `hdfs-site.xml sets fs.hdfs.impl`},
		{name: "shuffle", file: "spark/spark-defaults.conf", content: "spark.shuffle.sort.io.plugin.class=com.example.Io\n", says: `plugin.class is "com.example.Io"`},
		{name: "the profile", file: "hadoop/shellprofile.d/penstock.sh", content: "# theirs\n", says: "there already"},
		{name: "an agent", file: "spark/spark-defaults.conf", content: "spark.executor.defaultJavaOptions -javaagent:/x/penstock-agent.jar=socket=/y\n", says: "take it out", hard: true},
		{name: "an agent in front", file: "spark/spark-defaults.conf", content: "spark.executor.extraJavaOptions -javaagent:/x/penstock-agent.jar=socket=/y\n", says: "take it out", hard: true},
		{name: "final and empty", file: "hadoop/mapred-site.xml", content: "<configuration><property><name>penstock.socket</name><value/><final>true</final></property></configuration>", says: "final where", hard: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := scratch(t)
			put(t, dir, c.file, c.content)
			original := snapshot(t, dir)
			o := options(dir)
			o.AgentJar = filepath.Join(t.TempDir(), "penstock-agent.jar")
			if err := os.WriteFile(o.AgentJar, []byte("PK"), 0o644); err != nil {
				t.Fatal(err)
			}
			o.Force = false
			r, err := Apply(o)
			if !errors.Is(err, ErrConflict) || !strings.Contains(strings.Join(r.Conflicts, "\n"), c.says) {
				t.Errorf("%v, %q", err, r.Conflicts)
			}
			same(t, "refused", snapshot(t, dir), original)
			o.Force = true
			if _, err := Apply(o); c.hard != (err != nil) {
				t.Errorf("forced: %v", err)
			}
			if _, err := Remove(o); err != nil {
				t.Error(err)
			}
			same(t, "forced and removed", snapshot(t, dir), original)
		})
	}
}

// Other paths replace the former ones, and removal still restores the original.
func TestOtherPaths(t *testing.T) {
	dir := copied(t, "testdata/managed/before")
	original := snapshot(t, dir)
	applied(t, options(dir))
	o := options(dir)
	o.AgentJar, o.Socket = "/srv/penstock/2/penstock-agent.jar", "/srv/penstock/2.sock"
	applied(t, o)
	for name, content := range snapshot(t, dir) {
		if strings.Contains(content, testSocket) || strings.Contains(content, testJar) {
			t.Errorf("%s still has the former paths:\n%s", name, content)
		}
	}
	if _, err := Remove(o); err != nil {
		t.Fatal(err)
	}
	same(t, "removed", snapshot(t, dir), original)
}

func TestLinksAndOddFiles(t *testing.T) {
	dir, elsewhere := scratch(t), t.TempDir()
	real := filepath.Join(elsewhere, "real.xml")
	if err := os.WriteFile(real, []byte("<configuration>\n</configuration>\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	owner := [2]int{os.Getuid(), os.Getgid()}
	if owner[0] == 0 { // only root can give files away
		owner = [2]int{4711, 4712}
		if err := os.Chown(real, owner[0], owner[1]); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "hadoop", "mapred-site.xml")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	applied(t, options(dir))
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v (%v)", info.Mode(), err)
	}
	if data, _ := os.ReadFile(real); !strings.Contains(string(data), "penstock.socket") {
		t.Errorf("the file behind the link is\n%s", data)
	}
	info, err = os.Stat(real)
	if err != nil {
		t.Fatal(err)
	}
	if has := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != 0o640 || int(has.Uid) != owner[0] || int(has.Gid) != owner[1] {
		t.Errorf("it became %v of %d:%d", info.Mode(), has.Uid, has.Gid)
	}
	if _, err := Remove(options(dir)); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func() error{
		"link to nothing": func() error { return os.Symlink("/nowhere/at-all.xml", link) },
		"hard links":      func() error { return os.Link(real, link) },
		"regular":         func() error { return os.Mkdir(link, 0o755) },
		"zero bytes":      func() error { return os.WriteFile(link, []byte("<\x00c\x00"), 0o644) },
		"not <config":     func() error { return os.WriteFile(link, []byte("<site></site>"), 0o644) },
		"syntax":          func() error { return os.WriteFile(link, []byte("<configuration><a b></configuration>"), 0o644) },
		"cannot be read": func() error {
			return os.WriteFile(link, []byte(`<configuration><include href="gone.xml"/></configuration>`), 0o644)
		},
		"entities": func() error {
			return os.WriteFile(link, []byte(`<!DOCTYPE c [<!ENTITY a "b">]><configuration></configuration>`), 0o644)
		},
	} {
		if err := os.RemoveAll(link); err != nil {
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := Apply(options(dir)); err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "mapred-site.xml") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOneAtATime(t *testing.T) {
	dir := scratch(t)
	release, err := lock(filepath.Join(dir, "hadoop"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(options(dir)); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("beside another: %v", err)
	}
	release()
	applied(t, options(dir))
}

func TestValidate(t *testing.T) {
	good := Options{HadoopConf: "c", AgentJar: testJar, Socket: testSocket}
	if err := good.Validate(false); err != nil {
		t.Error(err)
	}
	for what, o := range map[string]Options{
		"folder":          {AgentJar: testJar, Socket: testSocket},
		"--agent-jar":     {SparkConf: "c", AgentJar: "/opt/my agent.jar", Socket: testSocket},
		"--socket":        {SparkConf: "c", AgentJar: testJar, Socket: "run/agent.sock"},
		"/opt/$(x)":       {SparkConf: "c", AgentJar: "/opt/$(x)", Socket: testSocket},
		"a:b":             {SparkConf: "c", AgentJar: "/a:b", Socket: testSocket},
		"108 bytes":       {SparkConf: "c", AgentJar: testJar, Socket: "/" + strings.Repeat("s", socketMax)},
		"/opt/../x.jar\"": {SparkConf: "c", AgentJar: "/opt/../x.jar", Socket: testSocket},
	} {
		if err := o.Validate(false); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	good.Socket = "/" + strings.Repeat("s", socketMax-1)
	if err := good.Validate(false); err != nil {
		t.Error(err)
	}
}

// TestAFolderOfSomethingElse: a folder without any usual file is taken as a mistake in the path,
// unless --force is set.
func TestAFolderOfSomethingElse(t *testing.T) {
	dir := t.TempDir()
	for _, conf := range []string{"hadoop", "spark"} {
		if err := os.Mkdir(filepath.Join(dir, conf), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o := options(dir)
	o.AgentJar, o.Force = filepath.Join(t.TempDir(), "penstock-agent.jar"), false
	if err := os.WriteFile(o.AgentJar, []byte("PK"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	_, err := Apply(o)
	for _, want := range []string{
		"hadoop is not a configuration folder of Hadoop: neither core-site.xml nor hdfs-site.xml is in it; correct the path (--force",
		"spark is not a configuration folder of Spark: neither spark-defaults.conf nor spark-env.sh is in it",
	} {
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	same(t, "refused", snapshot(t, dir), before)
	o.Force = true
	applied(t, o)
	o.Force = false
	applied(t, o) // it is ours now
	if _, err := Remove(o); err != nil {
		t.Error(err)
	}
	o.HadoopConf = filepath.Join(dir, "none", "hadoop")
	if _, err := Plan(o, false); err == nil || err.Error() != o.HadoopConf+": no such folder" {
		t.Error(err)
	}
	put(t, dir, "templates/spark-defaults.conf.template", "")
	o.HadoopConf, o.SparkConf = "", filepath.Join(dir, "templates")
	applied(t, o)
}
