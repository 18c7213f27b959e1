package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// Later is the folder of a bare system with the files of packages that are not installed yet.
const Later = "media/later"

// installPatience bounds the installation of a bare system.
const installPatience = 10 * time.Minute

// Root makes a bare system in the empty folder into: Debian's essential packages and further ones (more). All of them
// are installed. The files of the packages later, and of those that they need, are in the folder Later. Root needs root's rights.
// What it mounts for the packages' scripts is in a mount namespace of their own.
func (p *Packages) Root(ctx context.Context, into string, more, later []string) error {
	// Another package with the same purpose would change the links to /usr by a script, which needs all of Perl.
	names := append([]string{"?essential", "usr-is-merged"}, more...)
	bare, err := p.download(ctx, names)
	if err != nil {
		return err
	}
	if err := extractAll(ctx, bare, into); err != nil {
		return err
	}
	// Scripts of other packages may need users and groups before base-passwd makes these files.
	for _, file := range []string{"passwd", "group"} {
		text, err := os.ReadFile(filepath.Join(into, "usr/share/base-passwd", file+".master"))
		if err == nil {
			err = os.WriteFile(filepath.Join(into, "etc", file), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("users of a bare system: %w", err)
		}
	}
	archives := filepath.Join(into, "var/cache/apt/archives")
	for _, dir := range []string{archives, filepath.Join(into, Later), filepath.Join(into, "var/lib/dpkg/info"), filepath.Join(into, "var/lib/dpkg/updates"), filepath.Join(into, "var/lib/dpkg/triggers")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(into, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		return err
	}
	for i, deb := range bare {
		bare[i] = filepath.Base(deb)
		if err := os.Link(deb, filepath.Join(archives, bare[i])); err != nil {
			return err
		}
	}
	if err := install(ctx, into); err != nil {
		return err
	}
	for _, deb := range bare {
		if err := os.Remove(filepath.Join(archives, deb)); err != nil {
			return err
		}
	}
	if len(later) == 0 {
		return nil
	}
	all, err := p.download(ctx, append(names, later...))
	if err != nil {
		return err
	}
	for _, deb := range all {
		if name := filepath.Base(deb); !slices.Contains(bare, name) {
			if err := os.Link(deb, filepath.Join(into, Later, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// installAll installs the packages in a system's archives. Their files are already there, so the order does not matter.
const installAll = `set -e
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
exec chroot "$1" /bin/sh -c 'exec dpkg --force-depends --install /var/cache/apt/archives/*.deb' < /dev/null`

func install(ctx context.Context, root string) error {
	ctx, cancel := context.WithTimeout(ctx, installPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "--", "sh", "-c", installAll, "install", root)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("install a bare system, which needs root: %w: %s", err, out))
	}
	return nil
}
