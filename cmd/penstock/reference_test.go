package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What is committed is what the commands say of themselves.
func TestTheReferenceIsUpToDate(t *testing.T) {
	const committed = "../../docs/reference/cli"
	dir := t.TempDir()
	if err := writeReference(dir); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, d := range []string{dir, committed} {
		files, err := filepath.Glob(filepath.Join(d, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			names[filepath.Base(f)] = true
		}
	}
	for name := range names {
		want, _ := os.ReadFile(filepath.Join(dir, name))
		got, _ := os.ReadFile(filepath.Join(committed, name))
		if string(got) != string(want) {
			t.Errorf("docs/reference/cli/%s is not what the command says.\nTo mend: run make reference", name)
		}
	}
}
