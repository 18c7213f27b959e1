// Package debian fetches packages of Debian into the project's cache, once, and installs nothing.
//
// Tests need programs that a machine lacks, such as old Java runtimes, and a test must not change the machine. apt-get has
// lists, state and a cache of its own here, so the machine's packages and lists stay as they are, and a
// package is only unpacked. The archive's address, its keys and proxies are those of the machine's apt configuration.
package debian

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Archive runs apt-get with files of its own.
type Archive struct {
	work  string // folder for all files
	conf  string // path of its configuration
	suite string // the machine's own
}

// Own is the suite of the machine itself.
const Own = ""

// Fetch makes the folder dir, unless it exists: fill unpacks packages into a new folder, which then gets this name, as a
// whole. So two processes may fetch at the same time. The packages are of the machine's own suite and of another one, or of
// Own. Fetch needs a Debian machine.
func Fetch(ctx context.Context, dir, suite string, fill func(a *Archive, into string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is missing; Debian's packages can only be fetched on a Debian machine: %w", program, err)
		}
	}
	from, err := archive("/etc")
	if err != nil {
		return err
	}
	cache := filepath.Dir(dir)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache, "fetch-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	a, err := newArchive(work, from, cmp.Or(suite, from.suite))
	if err != nil {
		return err
	}
	if err := a.get(ctx, "update"); err != nil {
		return err
	}
	made := filepath.Join(work, "made")
	if err := fill(a, made); err != nil {
		return err
	}
	if err := os.Rename(made, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // otherwise another process was faster, and its folder is as good
			return err
		}
	}
	return nil
}

// newArchive prepares apt-get for packages of the machine's own suite and of another one.
func newArchive(work string, from source, suite string) (*Archive, error) {
	a := &Archive{work: work, conf: filepath.Join(work, "apt.conf"), suite: from.suite}
	var errs []error
	for _, dir := range []string{"sources", "lists/partial", "cache/archives/partial", "state", "debs"} {
		errs = append(errs, os.MkdirAll(filepath.Join(work, dir), 0o755))
	}
	for name, text := range map[string]string{
		"sources/debian.sources": from.with(suite),
		"status":                 "",
		"apt.conf":               configuration(work),
	} {
		errs = append(errs, os.WriteFile(filepath.Join(work, name), []byte(text), 0o644))
	}
	return a, errors.Join(errs...)
}

// configuration returns settings that apt-get reads after the machine's own, so proxies and the like stay in
// force. Commands that the machine runs after an update would change the machine.
func configuration(work string) string {
	return fmt.Sprintf(`#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::DEP-11-icons;
#clear Acquire::IndexTargets::deb::DEP-11-icons-hidpi;
Acquire::Languages "none";
APT::Sandbox::User "";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "%[1]s/sources";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "%[1]s/state";
Dir::State::Lists "%[1]s/lists";
Dir::State::Status "%[1]s/status";
Dir::Cache "%[1]s/cache";
Dir::Log "%[1]s/state";
`, work)
}

// downloadPatience bounds one call of apt-get.
const downloadPatience = 10 * time.Minute

func (a *Archive) get(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, downloadPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-c", a.conf}, args...)...)
	cmd.Dir, cmd.WaitDelay = filepath.Join(a.work, "debs"), 5*time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, out))
	}
	return nil
}

// Unpack downloads a package, which is name/suite, and unpacks it into a folder. It runs none of the package's scripts.
func (a *Archive) Unpack(ctx context.Context, what, into string) error {
	if err := a.get(ctx, "download", what); err != nil {
		return err
	}
	name, _, _ := strings.Cut(what, "/")
	debs, err := filepath.Glob(filepath.Join(a.work, "debs", name+"_*.deb"))
	if err != nil {
		return err
	}
	if len(debs) != 1 {
		return fmt.Errorf("apt-get download %s: %d files, expected one", what, len(debs))
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", debs[0], into).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", what, err, out)
	}
	return os.Remove(debs[0])
}

// Program returns the path of a program: the machine's own, or that of the package of this name, which is then downloaded.
func (a *Archive) Program(ctx context.Context, name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	into := filepath.Join(a.work, name)
	if err := a.Unpack(ctx, name+"/"+a.suite, into); err != nil {
		return "", fmt.Errorf("%s is missing and cannot be downloaded (apt-get install %s would do as well): %w", name, name, err)
	}
	return filepath.Join(into, "usr", "bin", name), nil
}
