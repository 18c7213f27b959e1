// Package packages tests the packages for Debian and Red Hat. dpkg installs, upgrades, removes and
// purges the Debian package in an empty root, so that the machine stays as it is; no service runs
// there. The package for Red Hat is only built and compared.
package packages

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// build builds the packages into a new folder and returns their paths.
func build(t *testing.T, version string) (deb, rpm string) {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "../../scripts/packages", dir, version).CombinedOutput()
	if err != nil {
		t.Fatalf("scripts/packages: %v\n%s", err, out)
	}
	debs, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	rpms, _ := filepath.Glob(filepath.Join(dir, "*.rpm"))
	if len(debs) != 1 || len(rpms) != 1 {
		t.Fatalf("packages: %v, %v; want one of each", debs, rpms)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("sha256sum: %v\n%s", err, out)
	}
	return debs[0], rpms[0]
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheSameFilesMakeTheSamePackages(t *testing.T) {
	deb, rpm := build(t, "1.0.0")
	deb2, rpm2 := build(t, "1.0.0")
	if !bytes.Equal(read(t, deb), read(t, deb2)) {
		t.Error("two builds made different packages for Debian")
	}
	if !bytes.Equal(read(t, rpm), read(t, rpm2)) {
		t.Error("two builds made different packages for Red Hat")
	}
}

func TestTheDebianPackageFromInstallationToPurge(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg := func(args ...string) string {
		t.Helper()
		args = append([]string{"--root=" + root, "--force-script-chrootless", "--force-confold"}, args...)
		out, err := exec.CommandContext(t.Context(), "dpkg", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("dpkg %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	path := func(p string) string { return filepath.Join(root, p) }
	first, _ := build(t, "1.0.0")
	second, _ := build(t, "1.0.1")

	out := dpkg("--install", first)
	if !bytes.Contains([]byte(out), []byte("systemctl enable --now penstock-node")) {
		t.Errorf("the installation does not say how to start the daemon:\n%s", out)
	}
	for p, want := range map[string]fs.FileMode{
		"opt/penstock/penstock":                        0o755,
		"opt/penstock/penstock-agent.jar":              0o644,
		"opt/penstock/penstock-sharedfs.jar":           0o644,
		"usr/lib/systemd/system/penstock-node.service": 0o644,
		"etc/penstock/node.yaml":                       0o644,
		"usr/bin/penstock":                             fs.ModeSymlink | 0o777,
	} {
		if info, err := os.Lstat(path(p)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want mode %v", p, info, err, want)
		}
	}
	settings := path("etc/penstock/node.yaml")
	check := exec.CommandContext(t.Context(), path("opt/penstock/penstock"), "node", "run", "--config", settings, "--check")
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("the package's settings: %v\n%s", err, out)
	}

	changed := slices.Concat(read(t, settings), []byte("users: [hdfs]\n"))
	if err := os.WriteFile(settings, changed, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", second)
	if !bytes.Equal(read(t, settings), changed) {
		t.Error("the upgrade overwrote the operator's settings")
	}

	dpkg("--remove", "penstock")
	if _, err := os.Lstat(path("opt/penstock/penstock")); err == nil {
		t.Error("the removal left the binary")
	}
	if !bytes.Equal(read(t, settings), changed) {
		t.Error("the removal changed the operator's settings, which only a purge may remove")
	}

	// What a daemon that was killed leaves.
	if err := os.MkdirAll(path("run/penstock"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("run/penstock/control.journal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg("--purge", "penstock")
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if p == path("var") {
			return fs.SkipDir // dpkg's own files
		}
		if err == nil && !d.IsDir() {
			t.Errorf("the purge left %s", p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"opt/penstock", "etc/penstock", "run/penstock"} {
		if _, err := os.Lstat(path(p)); err == nil {
			t.Errorf("the purge left the folder %s", p)
		}
	}
}
