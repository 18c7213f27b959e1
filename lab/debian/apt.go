// Package debian unpacks programs of Debian into folders, and makes bare systems in folders. Nothing is installed on
// the machine.
//
// apt-get has lists, state and a cache of its own, so the machine's packages and lists do not change. The packages'
// scripts run only in the folder of a bare system. The archive's address, its keys and proxies are those of the
// machine's apt configuration.
package debian

import (
	"bytes"
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

// Packages downloads and unpacks packages of the machine's archive. apt-get works with files below the folder work only.
type Packages struct {
	work  string // folder for all files
	conf  string // path of its configuration
	suite string // the machine's own
}

// Make makes the folder dir of a cache, unless it exists. It calls fill with packages of the machine's own suite and of
// another suite (empty: no other), and with a folder that becomes dir. Two processes may make the same folder at the same
// time: dir appears as a whole, by a rename. Make fails on a machine without apt-get and dpkg-deb.
func Make(ctx context.Context, dir, suite string, fill func(p *Packages, into string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is missing; this works on a Debian machine only: %w", program, err)
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
	p, err := open(work, from, cmp.Or(suite, from.suite))
	if err != nil {
		return err
	}
	if err := p.get(ctx, "update"); err != nil {
		return err
	}
	made := filepath.Join(work, "made")
	if err := os.Mkdir(made, 0o755); err != nil {
		return err
	}
	if err := fill(p, made); err != nil {
		return err
	}
	if err := os.Rename(made, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // otherwise another process was faster, and its folder is as good
			return err
		}
	}
	return nil
}

// open prepares apt-get for packages of the machine's own suite and of another one.
func open(work string, from source, suite string) (*Packages, error) {
	p := &Packages{work: work, conf: filepath.Join(work, "apt.conf"), suite: from.suite}
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
	return p, errors.Join(errs...)
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

func (p *Packages) get(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, downloadPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-c", p.conf}, args...)...)
	cmd.Dir, cmd.WaitDelay = filepath.Join(p.work, "debs"), 5*time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, out))
	}
	return nil
}

// Unpack downloads a package, named as "name" or "name/suite", and unpacks it into a folder.
func (p *Packages) Unpack(ctx context.Context, what, into string) error {
	deb, err := p.fetch(ctx, what)
	if err != nil {
		return err
	}
	return errors.Join(extract(ctx, deb, into), os.Remove(deb))
}

// Dependencies returns the names of the packages that a package, named as "name" or "name/suite", depends on, without
// their versions. Of alternatives it returns the first one.
func (p *Packages) Dependencies(ctx context.Context, what string) ([]string, error) {
	deb, err := p.fetch(ctx, what)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "dpkg-deb", "--field", deb, "Depends").Output()
	if err := errors.Join(err, os.Remove(deb)); err != nil {
		return nil, fmt.Errorf("dependencies of %s: %w", what, err)
	}
	return parseDepends(string(out)), nil
}

// parseDepends returns the names of packages in the text of a field Depends.
func parseDepends(text string) (names []string) {
	for group := range strings.SplitSeq(text, ",") {
		first, _, _ := strings.Cut(group, "|")
		if words := strings.Fields(first); len(words) > 0 {
			name, _, _ := strings.Cut(words[0], ":") // the architecture
			names = append(names, name)
		}
	}
	return names
}

// fetch downloads a package, named as "name" or "name/suite", and returns the path of its file.
func (p *Packages) fetch(ctx context.Context, what string) (string, error) {
	if err := p.get(ctx, "download", what); err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(what, "/")
	debs, err := filepath.Glob(filepath.Join(p.work, "debs", name+"_*.deb"))
	if err != nil {
		return "", err
	}
	if len(debs) != 1 {
		return "", fmt.Errorf("apt-get download %s: %d files, expected one", what, len(debs))
	}
	return debs[0], nil
}

// UnpackAll downloads packages of the machine's own suite, and the packages that they need and the machine does not
// have, and unpacks all of them into one folder. The folder has the form of a machine whose /bin, /lib and /sbin
// are links into /usr.
func (p *Packages) UnpackAll(ctx context.Context, into string, names ...string) error {
	debs, err := p.download(ctx, names, "-o", "Dir::State::Status=/var/lib/dpkg/status")
	if err != nil {
		return err
	}
	if err := extractAll(ctx, debs, into); err != nil {
		return err
	}
	for _, deb := range debs {
		if err := os.Remove(deb); err != nil {
			return err
		}
	}
	return nil
}

// download downloads packages and all that they need and the system does not have. It returns the paths of all files
// that were downloaded since the packages were opened. By default, the system has nothing.
func (p *Packages) download(ctx context.Context, names []string, options ...string) ([]string, error) {
	args := append(options, "install", "--yes", "--download-only", "--no-install-recommends")
	if err := p.get(ctx, append(args, names...)...); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(p.work, "cache", "archives", "*.deb"))
}

// extractAll unpacks the files of packages into an empty folder, whose /bin, /lib and /sbin become links into /usr.
func extractAll(ctx context.Context, debs []string, into string) error {
	for _, name := range []string{"bin", "lib", "lib64", "sbin"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(into, "usr", name), 0o755), os.Symlink("usr/"+name, filepath.Join(into, name))); err != nil {
			return err
		}
	}
	for _, deb := range debs {
		if err := extract(ctx, deb, into); err != nil {
			return err
		}
	}
	return nil
}

// extract unpacks a package's file into a folder. A link to a folder stays a link.
func extract(ctx context.Context, deb, into string) error {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	unpack := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	tar, err := unpack.StdoutPipe()
	if err != nil {
		return err
	}
	write := exec.CommandContext(ctx, "tar", "-x", "--keep-directory-symlink", "-C", into)
	write.Stdin = tar
	var problems bytes.Buffer
	unpack.Stderr, write.Stderr = &problems, &problems
	if err := unpack.Start(); err != nil {
		return err
	}
	err = write.Run()
	tar.Close() // otherwise dpkg-deb would wait for a reader that has ended
	if err := errors.Join(err, unpack.Wait()); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", filepath.Base(deb), err, &problems)
	}
	return nil
}

// Program returns the path of a program. If the machine lacks it, Program downloads the package of this name.
func (p *Packages) Program(ctx context.Context, name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	into := filepath.Join(p.work, name)
	if err := p.Unpack(ctx, name+"/"+p.suite, into); err != nil {
		return "", fmt.Errorf("%s is missing and cannot be downloaded (apt-get install %s would do as well): %w", name, name, err)
	}
	return filepath.Join(into, "usr", "bin", name), nil
}
