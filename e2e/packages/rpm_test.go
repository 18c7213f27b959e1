package packages

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sassoftware/go-rpmutils"
	"golang.org/x/sys/unix"

	lab "penstock/lab/debian"
)

// rpm reads a package for Red Hat, whose checksums it verifies.
func rpm(t *testing.T, path string) *rpmutils.Rpm {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if _, _, err := rpmutils.Verify(file, nil); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if _, err := file.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	r, err := rpmutils.ReadRpm(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return r
}

// The package for Red Hat has the same files as the one for Debian, and the same scripts.
func TestThePackageForRedHat(t *testing.T) {
	_, path := build(t, "1.0.0")
	r := rpm(t, path)
	files, err := r.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	const keepsChanges = rpmutils.RPMFILE_CONFIG | rpmutils.RPMFILE_NOREPLACE
	found := map[string]bool{}
	var folders []string
	for _, f := range files {
		kind := f.Mode() & unix.S_IFMT
		if kind == unix.S_IFDIR {
			folders = append(folders, f.Name())
			continue
		}
		found[f.Name()] = true
		want, known := contents[f.Name()]
		link, mode := kind == unix.S_IFLNK, fs.FileMode(f.Mode()).Perm()
		if !known || link != (want.Type() == fs.ModeSymlink) || !link && mode != want || f.UserName() != "root" || f.GroupName() != "root" {
			t.Errorf("%s: mode %o, owner %s, group %s; want mode %v", f.Name(), f.Mode(), f.UserName(), f.GroupName(), want)
		}
		if settings := filepath.Dir(f.Name()) == "/etc/penstock"; settings != (f.Flags()&keepsChanges == keepsChanges) {
			t.Errorf("%s: flags %x", f.Name(), f.Flags())
		}
	}
	slices.Sort(folders)
	if want := []string{"/etc/penstock", "/opt/penstock", "/usr/share/doc/penstock"}; !slices.Equal(folders, want) {
		t.Errorf("a removal removes the folders %v, want %v", folders, want)
	}
	for name := range contents {
		if !found[name] {
			t.Errorf("the package has no %s", name)
		}
	}
	for tag, script := range map[int]string{rpmutils.POSTIN: "postinstall.sh", rpmutils.PREUN: "preremove.sh", rpmutils.POSTUN: "postremove.sh"} {
		text, err := r.Header.GetString(tag)
		if want := read(t, "../../deploy/packages/"+script); err != nil || text != string(want) {
			t.Errorf("the package's script %s: %v\n%s", script, err, text)
		}
	}
	dir := t.TempDir()
	if err := r.ExpandPayload(dir); err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]string{"opt/penstock/penstock": "bin/penstock", "opt/penstock/penstock-agent.jar": "bin/penstock-agent.jar", "etc/penstock/node.yaml": "deploy/packages/node.yaml"} {
		if !bytes.Equal(read(t, filepath.Join(dir, name)), read(t, "../../"+source)) {
			t.Errorf("%s in the package differs from %s", name, source)
		}
	}
}

// redHat is an empty root with the database of rpm, and the programs that the package's scripts need.
type redHat struct {
	debian
	program string // rpm
	env     []string
}

// newRedHat returns an empty root. It uses the machine's rpm, or else unpacks Debian's rpm into the cache.
func newRedHat(t *testing.T) redHat {
	t.Helper()
	r := redHat{debian: debian{t, t.TempDir()}, env: os.Environ()}
	r.install("/bin/sh", "/bin/grep", "/bin/rm")
	program, err := exec.LookPath("rpm")
	if err != nil {
		dir, err := filepath.Abs("../../.cache/rpm")
		if err != nil {
			t.Fatal(err)
		}
		if err := lab.Make(t.Context(), dir, "", func(p *lab.Packages, into string) error { return p.UnpackAll(t.Context(), into, "rpm") }); err != nil {
			t.Fatalf("rpm for this test: %v", err)
		}
		libraries, err := filepath.Glob(filepath.Join(dir, "usr/lib/*-linux-gnu"))
		if err != nil {
			t.Fatal(err)
		}
		program = filepath.Join(dir, "usr/bin/rpm")
		r.env = append(r.env, "LD_LIBRARY_PATH="+strings.Join(libraries, ":"), "RPM_CONFIGDIR="+filepath.Join(dir, "usr/lib/rpm"))
	}
	r.program = program
	return r
}

// rpm runs rpm on the root and returns its output.
func (r redHat) rpm(args ...string) (string, error) {
	cmd := exec.CommandContext(r.Context(), r.program, append([]string{"--root", r.root, "--dbpath", "/var/lib/rpm"}, args...)...)
	cmd.Env = r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must runs rpm, and ends the test if rpm fails.
func (r redHat) must(args ...string) string {
	r.Helper()
	out, err := r.rpm(args...)
	if err != nil {
		r.Fatalf("rpm %v: %v\n%s", args, err, out)
	}
	return out
}

// rpm installs, upgrades and removes the package, and goes back to the former version. The operator's settings stay. A removal
// fails while a recorded change cannot be put back, and leaves everything in place. The root's database contains no shell, so
// dependencies are not checked.
func TestThePackageForRedHatFromInstallationToRemoval(t *testing.T) {
	r := newRedHat(t)
	_, first := build(t, "1.0.0")
	_, second := build(t, "1.0.1")
	if out := r.must("--install", "--nodeps", first); !strings.Contains(out, "systemctl enable --now penstock-node") {
		t.Errorf("the installation does not say how to start the daemon:\n%s", out)
	}
	for p, want := range contents {
		if info, err := os.Lstat(r.path(p)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want mode %v", p, info, err, want)
		}
	}
	const settings = "etc/penstock/node.yaml"
	changed := slices.Concat(read(t, r.path(settings)), []byte("users: [hdfs]\n"))
	r.write(settings, string(changed))
	version := func(want string) {
		t.Helper()
		if out := r.must("--query", "penstock"); !strings.HasPrefix(out, "penstock-"+want+"-") {
			t.Errorf("rpm reports the version %s, want %s", out, want)
		}
		if !bytes.Equal(read(t, r.path(settings)), changed) {
			t.Error("the operator's settings were overwritten")
		}
	}
	r.must("--upgrade", "--nodeps", second)
	version("1.0.1")
	r.must("--upgrade", "--nodeps", "--oldpackage", first)
	version("1.0.0")

	// No mechanism has this name, so nothing is done. Without /proc, the id of the boot is unknown.
	const journal = "run/penstock/control.journal"
	r.write(journal, `{"boot":"unknown"}`+"\n"+`{"change":{"mechanism":"later","target":"a","before":"7","after":"8"}}`+"\n")
	if out, err := r.rpm("--erase", "penstock"); err == nil || !strings.Contains(out, "the package stays") {
		t.Errorf("a removal beside a change that cannot be put back: %v\n%s", err, out)
	}
	for _, p := range []string{"opt/penstock/penstock", settings, journal} {
		if _, err := os.Stat(r.path(p)); err != nil {
			t.Errorf("after a removal that has failed: %v", err)
		}
	}
	if err := os.Remove(r.path(journal)); err != nil {
		t.Fatal(err)
	}
	if out := r.must("--erase", "penstock"); !strings.Contains(out, "nothing to put back") {
		t.Errorf("the removal has said:\n%s", out)
	}
	for _, p := range []string{"opt/penstock", "usr/bin/penstock", settings} {
		if _, err := os.Lstat(r.path(p)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after the removal: %s: %v", p, err)
		}
	}
	if !bytes.Equal(read(t, r.path(settings+".rpmsave")), changed) {
		t.Error("the removal did not keep the operator's settings as node.yaml.rpmsave")
	}
}

// A release replaces its candidates, and the build of a commit.
func TestVersionsForRedHat(t *testing.T) {
	version := func(v string) rpmutils.NEVRA {
		t.Helper()
		_, path := build(t, v)
		found, err := rpm(t, path).Header.GetNEVRA()
		if err != nil {
			t.Fatal(err)
		}
		return *found
	}
	if before, release := version("1.0.0~git20260101000000.abc"), version("1.0.0"); rpmutils.NEVRAcmp(before, release) >= 0 {
		t.Errorf("%v does not replace %v", release, before)
	}
}
