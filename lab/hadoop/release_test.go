package hadoop

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompleteLibIsNotFetchedAgain(t *testing.T) {
	cache := t.TempDir()
	for _, version := range Versions {
		home := filepath.Join(cache, "hadoop-"+version)
		if complete(home, version) {
			t.Error("no folder counts as complete")
		}
		for _, jar := range essential(version) {
			file := filepath.Join(home, jar)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Fetch(t.Context(), cache, version, nil)
		if err != nil || got != filepath.Join(home, "lib") {
			t.Errorf("%s: %s %v", version, got, err)
		}
	}
	if got, err := Fetch(t.Context(), cache, "", nil); err != nil || !strings.Contains(got, DefaultVersion) {
		t.Errorf("the default version: %s %v", got, err)
	}
}

func TestAnUnknownVersionIsAnsweredWithTheKnownOnes(t *testing.T) {
	_, err := Fetch(t.Context(), t.TempDir(), "2.10.2", nil)
	for _, named := range append([]string{"2.10.2"}, Versions...) {
		if err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("%v does not name %s", err, named)
		}
	}
}

func TestJarsOfTestsAreSetApart(t *testing.T) {
	work := t.TempDir()
	if err := os.Mkdir(filepath.Join(work, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, jar := range []string{"a-1.jar", "a-1-tests.jar"} {
		if err := os.WriteFile(filepath.Join(work, "lib", jar), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := setTestsApart(work); err != nil {
		t.Fatal(err)
	}
	jars, err := filepath.Glob(filepath.Join(work, "*", "*"))
	if want := work + "/lib/a-1.jar " + work + "/tests/a-1-tests.jar"; err != nil || strings.Join(jars, " ") != want {
		t.Errorf("%s %v", jars, err)
	}
}

func TestJavaIsChecked(t *testing.T) {
	for _, test := range []struct {
		hadoop, java string
		good         bool
	}{
		{"3.4.2", "17.0.15", true}, {"3.4.2", "11.0.2", true}, {"3.4.2", "1.8.0_402", true}, {"3.4.2", "1.7.0_80", false}, {"3.3.6", "1.8.0_402", true},
		{"3.4.2", "23", true}, {"3.4.2", "24", false}, {"3.4.2", "25", false},
		{"3.1.4", "1.8.0_402", true}, {"3.1.4", "11.0.2", false}, {"3.4.3", "21", true},
		{"3.5.0", "1.8.0_402", false}, {"3.5.0", "16.0.1", false}, {"3.5.0", "17", true},
	} {
		err := checkJava(test.hadoop, "/j/bin/java", releaseMajor("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\""+test.java+"\"\n"))
		if (err == nil) != test.good {
			t.Errorf("Hadoop %s on Java %s: %v", test.hadoop, test.java, err)
		}
	}
	if err := checkJava(DefaultVersion, "/j/bin/java", releaseMajor("")); err != nil {
		t.Error(err)
	}
}

// javaFolder makes the home of a Java that is known by the given file.
func javaFolder(t *testing.T, file, text string) string {
	t.Helper()
	home := t.TempDir()
	for name, content := range map[string]string{"bin/java": "", file: text} {
		path := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// All JVMs of a cluster run on its own Java, and Java 8 gets no options that it does not know.
func TestAClusterHasItsOwnJava(t *testing.T) {
	for _, test := range []struct {
		name, file, text string
		modules          bool
	}{
		{"a runtime of Java 8", "lib/rt.jar", "", false},
		{"a JDK of Java 8", "release", "JAVA_VERSION=\"1.8.0_402\"\n", false},
		{"Java 11", "release", "JAVA_VERSION=\"11.0.24\"\n", true},
		{"an unknown Java", "x", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			home := javaFolder(t, test.file, test.text)
			c := testCluster(t, Config{Java: home})
			for what, options := range map[string]string{"servers": strings.Join(c.jvmOpts(256), " "), "tasks": c.site()["mapreduce.map.java.opts"]} {
				if strings.Contains(options, "--add-opens") != test.modules {
					t.Errorf("options of %s: %s", what, options)
				}
			}
			made, err := c.JavaHome("", "")
			if err != nil {
				t.Fatal(err)
			}
			script, err := os.ReadFile(filepath.Join(made, "bin", "java"))
			if err != nil || !strings.Contains(string(script), "exec "+home+"/bin/java ") {
				t.Errorf("%s, %v", script, err)
			}
		})
	}
}

func TestAWrongJavaIsRefusedBeforeAnythingStarts(t *testing.T) {
	lib := testCluster(t, Config{}).cfg.Lib
	for home, want := range map[string]string{
		javaFolder(t, "release", "JAVA_VERSION=\"1.7.0_80\"\n"): "is Java 7",
		t.TempDir(): "no Java in",
	} {
		cfg := Config{RunDir: "/r", Lib: lib, Java: home}
		if err := cfg.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
