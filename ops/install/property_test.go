package install

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// siteXML draws a configuration file as people and tools write them.
func siteXML(t *rapid.T) string {
	eol := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "eol")
	pad := rapid.SampledFrom([]string{"", "  ", "\t"}).Draw(t, "indent")
	keys := []string{"a", "mapreduce.map.memory.mb", "mapreduce.application.classpath", "mapreduce.admin.map.child.java.opts", "penstock.file.impl"}
	values := []string{"1", "/a/*,/b/*", "x &amp; y", "<![CDATA[a<b]]>", " spaced ", "/x,", "/a,<!-- why --> /b", "ü", defaultFiles}
	var b strings.Builder
	b.WriteString(rapid.SampledFrom([]string{"", "\xef\xbb\xbf", `<?xml version="1.0"?>` + eol, `<?xml version="1.0" encoding="ISO-8859-1"?><!-- ` + "\xfc -->"}).Draw(t, "head"))
	if rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
		return b.String() + rapid.SampledFrom([]string{"<configuration/>", "<configuration  a='b' />" + eol}).Draw(t, "root")
	}
	b.WriteString("<configuration>" + rapid.SampledFrom([]string{"", eol, eol + eol}).Draw(t, "gap"))
	for i := range rapid.IntRange(0, 6).Draw(t, "properties") {
		key := rapid.SampledFrom(keys).Draw(t, fmt.Sprint("key", i))
		value := rapid.SampledFrom(values).Draw(t, fmt.Sprint("value", i))
		if key == "penstock.file.impl" {
			value = defaultFiles
		}
		final := rapid.SampledFrom([]string{"", "", "<final>true</final>", "<final>false</final>"}).Draw(t, fmt.Sprint("final", i))
		switch rapid.IntRange(0, 3).Draw(t, fmt.Sprint("form", i)) {
		case 0:
			fmt.Fprintf(&b, "%s<property><name>%s</name><value>%s</value>%s</property>%s", pad, key, value, final, eol)
		case 1:
			fmt.Fprintf(&b, "%s<property>%s%s<value>%s%s</value>%s%s%s<name> %s%s</name></property>", pad, eol, final, value, eol, "<!--", "n", "-->", key, eol)
		case 2:
			fmt.Fprintf(&b, "%s<property name='%s'  value = \"%s\"/>%s<!-- %s -->%s", pad, key, "v"+fmt.Sprint(i), eol, key, eol)
		case 3:
			fmt.Fprintf(&b, "<property><name>%s</name><value/></property><property><value>%s</value></property>", key, value)
		}
	}
	b.WriteString(pad + "</configuration>" + rapid.SampledFrom([]string{"", eol, "<!-- end -->"}).Draw(t, "tail"))
	return b.String()
}

// sparkConf draws a spark-defaults.conf.
func sparkConf(t *rapid.T) string {
	keys := []string{"spark.master", "spark.driver.extraClassPath", "spark.executor.defaultJavaOptions", "spark.hadoop.penstock.hdfs.impl"}
	var b strings.Builder
	for i := range rapid.IntRange(0, 6).Draw(t, "lines") {
		key := rapid.SampledFrom(keys).Draw(t, fmt.Sprint("key", i))
		value := rapid.SampledFrom([]string{"", "yarn", "/a:/b", "-Da=b -Dc", `a\:b`, `ends\ `, "over \\\n   two", "over \\\r\n\t! three \\\n # lines ", `\u00e4`, `C:\\x\\`, ":", "= x", "ü", "-Da \t"}).Draw(t, fmt.Sprint("value", i))
		if key == "spark.hadoop.penstock.hdfs.impl" {
			value = defaultHDFS
		}
		between := rapid.SampledFrom([]string{" ", "=", " = ", ":", "\t", " \\\n  "}).Draw(t, fmt.Sprint("between", i))
		before := rapid.SampledFrom([]string{"", "  ", "# a comment \\\n", "! another\r\n", "\n", " \t\n"}).Draw(t, fmt.Sprint("before", i))
		b.WriteString(before + key + between + value + rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, fmt.Sprint("end", i)))
	}
	text := b.String()
	if rapid.Bool().Draw(t, "cut") {
		text = strings.TrimRight(text, "\r\n")
	}
	return text
}

// For any files: Apply and Remove restore the folder to the byte, a second Apply changes nothing,
// and other keys keep their values.
func TestApplyThenRemoveChangesNothing(t *testing.T) {
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		site, conf := siteXML(rt), sparkConf(rt)
		env := rapid.SampledFrom([]string{"", "export A=1\n", "export A=1", "a\r\nb\r\n"}).Draw(rt, "env")
		put(t, dir, "hadoop/mapred-site.xml", site)
		put(t, dir, "spark/spark-defaults.conf", conf)
		put(t, dir, "spark/spark-env.sh", env)
		original := snapshot(t, dir)
		o := options(dir)
		if _, err := Apply(o); err != nil {
			same(rt, "not applied", snapshot(t, dir), original)
			rt.Fatalf("%v\n%s\n%s", err, site, conf)
		}
		first := snapshot(t, dir)
		if r, err := Apply(o); err != nil || r.Changes() {
			rt.Fatalf("a second time: %v, %+v", err, r)
		}
		same(rt, "a second time", snapshot(t, dir), first)
		written, err := os.ReadFile(filepath.Join(dir, "spark", "spark-defaults.conf"))
		if err != nil {
			rt.Fatal(err)
		}
		wantKeys(rt, sparkProperties, written, sparkTargets(o)[1].wants)
		written, err = os.ReadFile(filepath.Join(dir, "hadoop", "mapred-site.xml"))
		if err != nil {
			rt.Fatal(err)
		}
		wantKeys(rt, hadoopXML, written, hadoopTargets(o)[1].wants)
		if _, err := Remove(o); err != nil {
			rt.Fatal(err)
		}
		same(rt, "removed", snapshot(t, dir), original)
		_ = os.RemoveAll(dir)
	})
}

func wantKeys(t *rapid.T, f format, written []byte, wants []want) {
	doc, err := parse(f, written, includes("/nowhere"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wants {
		e, ok := doc.effective(w.key)
		if !ok || w.set != "" && e.value != w.set || w.add != "" && !w.has(e.value) {
			t.Fatalf("%s is %q in\n%s", w.key, e.value, written)
		}
	}
}

// refuse stands for files that include others.
func refuse(string) ([]byte, error) { return nil, os.ErrNotExist }

// The editor may refuse a file, but must not spoil it: its result can be undone to the byte, and a
// second identical request changes nothing.
func fuzzEditor(f *testing.F, format format, wants []want) {
	f.Fuzz(func(t *testing.T, base []byte) {
		next, edits, _, err := change(format, base, wants, refuse, true)
		if err != nil {
			return
		}
		back, err := undoAll(format, next, edits, refuse)
		if err != nil || !bytes.Equal(back, base) {
			t.Fatalf("%q became\n%q and, taken back,\n%q (%v)", base, next, back, err)
		}
		again, more, _, err := change(format, next, wants, refuse, true)
		if err != nil || len(more) > 0 || !bytes.Equal(again, next) {
			t.Fatalf("again, %q became\n%q by %+v (%v)", next, again, more, err)
		}
	})
}

func seeds(f *testing.F, pattern string) {
	names, err := filepath.Glob(filepath.Join("testdata", "*", "*", "*", pattern))
	if err != nil || len(names) < 5 {
		f.Fatalf("%d seeds (%v)", len(names), err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

func FuzzXML(f *testing.F) {
	seeds(f, "*.xml")
	for _, s := range []string{"", " \n", "<configuration", "<configuration></configuration", "<configuration/><configuration/>", "<a:configuration xmlns:a='b'/>",
		"<configuration><property><name>penstock.socket</name><value>x</value><value>y</value></property></configuration>",
		"<configuration><property value='a>b' name='fs.file.impl'/></configuration>", "<?xml version='1.1'?><configuration/>",
		"<configuration><property><name>penstock.socket</name><value>&#47;x</value></property></configuration>\xff\xfe"} {
		f.Add([]byte(s))
	}
	fuzzEditor(f, hadoopXML, hadoopTargets(options("/"))[1].wants)
}

func FuzzProperties(f *testing.F) {
	seeds(f, "*.conf")
	for _, s := range []string{"", "\\", "a\\", "a \\\n", "\\\n\\\n=x", "spark.driver.extraClassPath \\", "spark.driver.extraClassPath", "spark.driver.extraClassPath=\\ \n\n#", "\\u00e", "a\x00b", "spark.driver.extraClassPath:a\\\\\\\n\fb"} {
		f.Add([]byte(s))
	}
	fuzzEditor(f, sparkProperties, sparkTargets(options("/"))[1].wants)
}
