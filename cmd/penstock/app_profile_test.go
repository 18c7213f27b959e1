package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPairOfFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	const text = `{"penstock_application_profile":1,"application":"a","nodes":[{"name":"n","cores":2,"memory_bytes":1000,"disks":1}]}
{"node":0,"at_ns":0}
{"node":0,"at_ns":5000000000,"cpu_ns":8000000000}
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := run(t, "app", "pair", file, file); err != nil || strings.Count(out, "poor 1.60 CPU") != 4 {
		t.Errorf("%v\n%s", err, out)
	}
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "app", "pair", file); err == nil || !strings.Contains(err.Error(), file+": line 1: not a profile") {
		t.Error(err)
	}
	if _, err := run(t, "app", "profile", "a", "--out", file); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Error(err)
	}
	for _, flag := range []string{"--memory", "--network"} {
		if _, err := run(t, "app", "profile", "a", flag, "ten"); err == nil || !strings.Contains(err.Error(), flag) {
			t.Error(err)
		}
	}
}
