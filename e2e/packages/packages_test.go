// Package packages tests the packages for Debian and Red Hat. dpkg installs, upgrades, removes and
// purges the Debian package in an empty root, so that the machine stays as it is; no service runs
// there. rpm does the same with the package for Red Hat. In `make soak`, a bare Debian machine becomes
// a governed DataNode.
package packages

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"penstock/lab/disk"
	"penstock/lab/stand"
)

// built has the paths of the packages of a version.
type built struct{ deb, rpm string }

// kept has the packages that several tests use, by version. They are in folder, which the package's tests share.
var (
	folder string
	kept   = map[string]built{}
)

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	stand.Recover()
	var err error
	if folder, err = os.MkdirTemp("", "penstock-packages-"); err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(folder)
	return m.Run()
}

// build returns the packages of a version, which are built at the first call.
func build(t *testing.T, version string) (deb, rpm string) {
	t.Helper()
	p, found := kept[version]
	if !found {
		p.deb, p.rpm = buildInto(t, filepath.Join(folder, version), version)
		kept[version] = p
	}
	return p.deb, p.rpm
}

// buildInto builds the packages into a folder and returns their paths.
func buildInto(t *testing.T, dir, version string) (deb, rpm string) {
	t.Helper()
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
	deb2, rpm2 := buildInto(t, t.TempDir(), "1.0.0")
	if !bytes.Equal(read(t, deb), read(t, deb2)) {
		t.Error("two builds made different packages for Debian")
	}
	if !bytes.Equal(read(t, rpm), read(t, rpm2)) {
		t.Error("two builds made different packages for Red Hat")
	}
}

// debian is an empty root with dpkg's database.
type debian struct {
	*testing.T
	root string
}

func newDebian(t *testing.T) debian {
	t.Helper()
	d := debian{t, t.TempDir()}
	for _, dir := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info", "var/log"} {
		if err := os.MkdirAll(d.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.write("var/lib/dpkg/status", "")
	return d
}

func (d debian) path(p string) string { return filepath.Join(d.root, p) }

func (d debian) write(p, text string) {
	d.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(d.path(p)), 0o755), os.WriteFile(d.path(p), []byte(text), 0o644)); err != nil {
		d.Fatal(err)
	}
}

// dpkg changes the root and returns what the package's scripts print. The machine's shell runs the scripts, and
// DPKG_ROOT names the root to them.
func (d debian) dpkg(args ...string) string {
	d.Helper()
	out, err := d.run(append([]string{"--force-script-chrootless"}, args...)...)
	if err != nil {
		d.Fatalf("dpkg %v: %v\n%s", args, err, out)
	}
	return out
}

// run runs dpkg. The scripts run in the root, as on a machine of its own.
func (d debian) run(args ...string) (string, error) {
	args = append([]string{"--root=" + d.root, "--force-confold"}, args...)
	out, err := exec.CommandContext(d.Context(), "dpkg", args...).CombinedOutput()
	return string(out), err
}

// install copies programs of the machine, and the libraries that they need, into the root.
func (d debian) install(programs ...string) {
	d.Helper()
	for _, program := range programs {
		libraries, err := exec.CommandContext(d.Context(), "ldd", program).Output()
		if err != nil {
			d.Fatalf("ldd %s: %v", program, err)
		}
		files := append(regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1), program)
		for _, f := range files {
			text := read(d.T, f)
			if err := errors.Join(os.MkdirAll(filepath.Dir(d.path(f)), 0o755), os.WriteFile(d.path(f), text, 0o755)); err != nil {
				d.Fatal(err)
			}
		}
	}
}

// contents has the files of both packages with their modes.
var contents = map[string]fs.FileMode{
	"/opt/penstock/penstock":                          0o755,
	"/opt/penstock/penstock-agent.jar":                0o644,
	"/opt/penstock/penstock-sharedfs.jar":             0o644,
	"/usr/lib/systemd/system/penstock-node.service":   0o644,
	"/usr/lib/systemd/system/penstock-broker.service": 0o644,
	"/usr/lib/sysusers.d/penstock.conf":               0o644,
	"/usr/lib/tmpfiles.d/penstock.conf":               0o644,
	"/usr/share/doc/penstock/copyright":               0o644,
	"/etc/penstock/node.yaml":                         0o644,
	"/etc/penstock/broker.env":                        0o644,
	"/usr/bin/penstock":                               fs.ModeSymlink | 0o777,
}

func TestTheDebianPackageFromInstallationToPurge(t *testing.T) {
	d := newDebian(t)
	first, _ := build(t, "1.0.0")
	second, _ := build(t, "1.0.1")

	if out := d.dpkg("--install", first); !strings.Contains(out, "systemctl enable --now penstock-node") {
		t.Errorf("the installation does not say how to start the daemon:\n%s", out)
	}
	for p, want := range contents {
		if info, err := os.Lstat(d.path(p)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want mode %v", p, info, err, want)
		}
	}
	settings := d.path("etc/penstock/node.yaml")
	check := exec.CommandContext(t.Context(), d.path("opt/penstock/penstock"), "node", "run", "--config", settings, "--check")
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("the package's settings: %v\n%s", err, out)
	}

	changed := slices.Concat(read(t, settings), []byte("users: [hdfs]\n"))
	d.write("etc/penstock/node.yaml", string(changed))
	d.dpkg("--install", second)
	if !bytes.Equal(read(t, settings), changed) {
		t.Error("the upgrade overwrote the operator's settings")
	}

	d.dpkg("--remove", "penstock")
	if _, err := os.Lstat(d.path("opt/penstock/penstock")); err == nil {
		t.Error("the removal left the binary")
	}
	if !bytes.Equal(read(t, settings), changed) {
		t.Error("the removal changed the operator's settings, which only a purge may remove")
	}

	// What a daemon that was killed leaves: a record without changes.
	d.write("run/penstock/control.journal", `{"boot":"a"}`+"\n")
	d.dpkg("--purge", "penstock")
	err := filepath.WalkDir(d.root, func(p string, e fs.DirEntry, err error) error {
		if p == d.path("var") {
			return fs.SkipDir // dpkg's own files
		}
		if err == nil && !e.IsDir() {
			t.Errorf("the purge left %s", p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"opt/penstock", "etc/penstock", "run/penstock"} {
		if _, err := os.Lstat(d.path(p)); err == nil {
			t.Errorf("the purge left the folder %s", p)
		}
	}

	// A record with changes that may still be in force stays: it says how to undo them.
	const record = `{"boot":"a"}` + "\n" + `{"change":{"mechanism":"cgroup","target":"a","before":"","after":"8"}}` + "\n"
	d.dpkg("--install", second)
	d.write("run/penstock/control.journal", record)
	out := d.dpkg("--purge", "penstock")
	if left := read(t, d.path("run/penstock/control.journal")); string(left) != record || !strings.Contains(out, "put-back --journal") {
		t.Errorf("after a purge the record of changes is %q, and dpkg has said:\n%s", left, out)
	}
}

// The scripts run in a root with a shell, where no systemd runs. A removal fails while the record of a killed daemon has a
// change that cannot be put back, and then leaves everything in place.
func TestTheRemovalInARootOfItsOwn(t *testing.T) {
	d := newDebian(t)
	d.install("/bin/sh", "/bin/grep", "/bin/rm")
	deb, _ := build(t, "1.0.0")
	if out, err := d.run("--install", deb); err != nil || !strings.Contains(out, "systemctl enable --now") {
		t.Fatalf("dpkg: %v\n%s", err, out)
	}
	// No mechanism has this name, so nothing is done. Without /proc, the id of the boot is unknown.
	const record = `{"boot":"unknown"}` + "\n" + `{"change":{"mechanism":"later","target":"a","before":"7","after":"8"}}` + "\n"
	d.write("run/penstock/control.journal", record)
	for _, order := range []string{"--remove", "--purge"} {
		out, err := d.run(order, "penstock")
		if err == nil || !strings.Contains(out, "the package stays") || !strings.Contains(out, `"later"`) {
			t.Errorf("dpkg %s: %v\n%s", order, err, out)
		}
		for _, p := range []string{"opt/penstock/penstock", "etc/penstock/node.yaml", "run/penstock/control.journal"} {
			if _, err := os.Stat(d.path(p)); err != nil {
				t.Errorf("after a %s that has failed: %v", order, err)
			}
		}
	}
	if err := os.Remove(d.path("run/penstock/control.journal")); err != nil {
		t.Fatal(err)
	}
	if out, err := d.run("--purge", "penstock"); err != nil || !strings.Contains(out, "nothing to put back") {
		t.Errorf("dpkg: %v\n%s", err, out)
	}
	if _, err := os.Stat(d.path("opt/penstock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the purge: %v", err)
	}
}

// A removal asks the daemon's binary to put back what a killed daemon has left. While that fails, the package stays.
func TestTheRemovalWaitsUntilEverythingIsPutBack(t *testing.T) {
	script := string(read(t, "../../deploy/packages/preremove.sh"))
	dir := t.TempDir()
	binary, settings, asked := filepath.Join(dir, "penstock"), filepath.Join(dir, "node.yaml"), filepath.Join(dir, "asked")
	// The script with a binary, settings and a systemd that are the test's own.
	for old, new := range map[string]string{"! /opt/penstock/penstock ": "! " + binary + " ", "/etc/penstock/node.yaml": settings, "/run/systemd/system": filepath.Join(dir, "none")} {
		if !strings.Contains(script, old) {
			t.Fatalf("the script does not have %q", old)
		}
		script = strings.ReplaceAll(script, old, new)
	}
	run := func(root string, result int, args ...string) (string, error) {
		t.Helper()
		answer := fmt.Sprintf("#!/bin/sh\necho \"$*\" > %s\nexit %d\n", asked, result)
		if err := errors.Join(os.RemoveAll(asked), os.WriteFile(binary, []byte(answer), 0o755)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-s", "--"}, args...)...)
		cmd.Stdin, cmd.Env = strings.NewReader(script), append(os.Environ(), "DPKG_ROOT="+root)
		out, err := cmd.CombinedOutput()
		text, _ := os.ReadFile(asked) // not there if the binary was not asked
		return string(text) + string(out), err
	}
	for _, c := range []struct {
		args, root string
		settings   bool
		result     int
		asks       string
		fails      bool
	}{
		{"upgrade 2", "", true, 1, "", false},
		{"1", "", true, 1, "", false}, // Red Hat: another version remains
		{"remove", dir, true, 1, "", false},
		{"remove", "", true, 0, "node put-back --config " + settings, false},
		{"0", "", true, 1, "node put-back --config " + settings, true},
		{"remove", "", false, 1, "node put-back --journal /run/penstock/control.journal", true},
	} {
		if err := os.RemoveAll(settings); err != nil {
			t.Fatal(err)
		}
		if c.settings {
			if err := os.WriteFile(settings, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out, err := run(c.root, c.result, strings.Fields(c.args)...)
		if (err != nil) != c.fails || !strings.Contains(out, c.asks) || strings.Contains(out, "put-back") != (c.asks != "") {
			t.Errorf("%+v: %v\n%s", c, err, out)
		}
	}
}
