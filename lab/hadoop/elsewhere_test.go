package hadoop

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRedirect(t *testing.T) {
	dir := t.TempDir()
	locals := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	c := testCluster(t, Config{LocalDirs: locals})
	for _, local := range locals {
		if err := os.MkdirAll(filepath.Join(local, "nm0", "usercache"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	others := []string{filepath.Join(dir, "c"), filepath.Join(dir, "d")}
	if err := c.Redirect("elsewhere", others); err != nil {
		t.Fatal(err)
	}
	spill := filepath.Join("appcache", "application_1_0001", "spill")
	for i, local := range locals {
		path := filepath.Join(local, "nm0", "usercache", "elsewhere", spill)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(others[i], spill)); err != nil {
			t.Errorf("what goes to %s is not in %s: %v", path, others[i], err)
		}
	}
	if err := c.Redirect("elsewhere", others); err == nil {
		t.Error("redirected twice")
	}
	if err := c.Redirect("another", others[:1]); err == nil {
		t.Error("one folder for two local directories was accepted")
	}
}
