package packages

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sassoftware/go-rpmutils"
	"golang.org/x/sys/unix"
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
