package maven

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake replaces Maven by a shell script. The variable $into contains the folder for the jars.
func fake(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	text := "#!/bin/sh\nset -eu\nfor a; do case $a in -DoutputDirectory=*) into=${a#*=};; esac; done\n" + script
	if err := os.WriteFile(filepath.Join(dir, "mvn"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func has(file string) func(string) bool {
	return func(home string) bool {
		_, err := os.Stat(filepath.Join(home, file))
		return err == nil
	}
}

func TestFetch(t *testing.T) {
	home := filepath.Join(t.TempDir(), "cache", "a-1")
	p := Program{Name: "A 1", Home: home, Jars: "lib", POM: []byte("<project/>"), Properties: []string{"a.version=1"},
		Arrange: func(home string) error {
			return os.Rename(filepath.Join(home, "lib", "b.jar"), filepath.Join(home, "b.jar"))
		},
		Complete: has("b.jar")}
	fake(t, `echo "what is wrong"; exit 3`)
	if err := Fetch(t.Context(), p, nil); err == nil || !strings.Contains(err.Error(), "exit status 3; its last lines:\nwhat is wrong") {
		t.Errorf("Maven fails: %v", err)
	}
	fake(t, `mkdir -p "$into"; echo "$*" >"$into/said"; echo >"$into/a.jar"; echo >"$into/b.jar"`)
	part := p
	part.Arrange = nil
	if err := Fetch(t.Context(), part, nil); err == nil || !strings.Contains(err.Error(), "is not complete") {
		t.Errorf("a jar is missing: %v", err)
	}
	if _, err := os.Stat(home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not complete has become the program: %v", err)
	}
	if err := Fetch(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(filepath.Join(home, "lib", "said"))
	if err != nil || !strings.Contains(string(said), "-Da.version=1 dependency:copy-dependencies") {
		t.Errorf("Maven gets %q, %v", said, err)
	}
	for _, jar := range []string{"lib/a.jar", "b.jar"} {
		if !has(jar)(home) {
			t.Errorf("no %s", jar)
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(home), "*")); err != nil || len(left) != 1 {
		t.Errorf("left in the cache: %v, %v", left, err)
	}
	t.Setenv("PATH", "")
	if err := Fetch(t.Context(), p, nil); err != nil { // without running Maven
		t.Errorf("it is there: %v", err)
	}
	if err := os.Remove(filepath.Join(home, "b.jar")); err != nil {
		t.Fatal(err)
	}
	if err := Fetch(t.Context(), p, nil); err == nil || !strings.Contains(err.Error(), "delete the folder") {
		t.Errorf("a jar is gone: %v", err)
	}
}

// TestTwice: if two processes fetch at the same time, the second one uses the first one's folder.
func TestTwice(t *testing.T) {
	home := filepath.Join(t.TempDir(), "a-1")
	fake(t, `mkdir -p "$into" "`+home+`"; echo >"$into/a.jar"; echo first >"`+home+`/a.jar"`)
	if err := Fetch(t.Context(), Program{Name: "A 1", Home: home, Complete: has("a.jar")}, nil); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(home, "a.jar")); err != nil || string(text) != "first\n" {
		t.Errorf("%q, %v", text, err)
	}
}
