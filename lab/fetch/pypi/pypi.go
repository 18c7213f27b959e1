// Package pypi fetches published Python packages by their digests: Spark with its Python part, and
// the TPC-H generator. Maven does not provide these.
package pypi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Package is a file of a release on PyPI.
type Package struct {
	Name    string
	Version string
	SHA256  string // digest of the file, in hexadecimal
	Source  bool   // the source archive, not the wheel
}

// Fetch makes sure that dir contains the package's unpacked files, and returns at once if it does.
// Otherwise it downloads the package and calls unpack with the downloaded file and a new folder. A
// rename turns that folder into dir, so dir is either complete or missing. pip takes its index and
// mirrors from the user's own settings.
func Fetch(ctx context.Context, dir string, p Package, unpack func(archive, into string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "fetch-"+p.Name+"-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	archive, err := download(ctx, work, p)
	if err != nil {
		return err
	}
	into := filepath.Join(work, "unpacked")
	if err := os.Mkdir(into, 0o755); err != nil {
		return err
	}
	if err := unpack(archive, into); err != nil {
		return fmt.Errorf("unpack %s %s: %w", p.Name, p.Version, err)
	}
	// The rename fails if another process was faster, and that process's folder is as good.
	if err := os.Rename(into, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			return err
		}
	}
	return nil
}

func download(ctx context.Context, work string, p Package) (file string, err error) {
	wanted := filepath.Join(work, "requirements.txt")
	if err := os.WriteFile(wanted, fmt.Appendf(nil, "%s==%s --hash=sha256:%s\n", p.Name, p.Version, p.SHA256), 0o644); err != nil {
		return "", err
	}
	to := filepath.Join(work, "download")
	args := []string{"-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--dest", to, "--requirement", wanted}
	if p.Source {
		args = append(args, "--no-binary", p.Name)
	} else {
		args = append(args, "--only-binary", p.Name)
	}
	cmd := exec.CommandContext(ctx, "python3", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(ctx.Err(), fmt.Errorf("fetch %s %s (needs python3 with pip): %w: %s", p.Name, p.Version, err, out))
	}
	files, err := os.ReadDir(to)
	if err != nil {
		return "", err
	}
	if len(files) != 1 {
		return "", fmt.Errorf("pip download of %s gave %d files", p.Name, len(files))
	}
	return filepath.Join(to, files[0].Name()), nil
}
