package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"penstock/lab/poll"
	"penstock/lab/process"
)

// Moose is a MooseFS with its master on the first host.
type Moose struct {
	hosts  []*Host
	copies int
}

// MooseOptions are the options of a MooseFS.
type MooseOptions struct {
	Chunks []string // folder of each host's chunks
	Copies int      // of each file; values below 1 count as 1
}

// StartMoose starts MooseFS on the hosts. The label of each chunk server is a letter: A on the first host, B on the second.
func StartMoose(ctx context.Context, hosts []*Host, o MooseOptions) (*Moose, error) {
	if len(o.Chunks) != len(hosts) || len(hosts) > 26 {
		return nil, fmt.Errorf("storage: %d folders of chunks for %d hosts: give one for each of at most 26 hosts", len(o.Chunks), len(hosts))
	}
	m := &Moose{hosts: hosts, copies: max(o.Copies, 1)}
	master := hosts[0]
	if _, err := master.Run(ctx, "cp", "/var/lib/mfs/metadata.mfs.empty", "/var/lib/mfs/metadata.mfs"); err != nil {
		return nil, err
	}
	err := errors.Join(
		master.write("etc/mfs/mfsexports.cfg", "* / rw,alldirs,maproot=0:0\n"),
		master.write("etc/mfs/mfsmaster.cfg", settings("WORKING_USER", "root", "WORKING_GROUP", "root", "NICE_LEVEL", "0",
			"DISABLE_OOM_KILLER", "0", "EXPORTS_FILENAME", "/etc/mfs/mfsexports.cfg")))
	if err != nil {
		return nil, err
	}
	if _, err := master.Start("mfsmaster", "mfsmaster", "-d", "-c", "/etc/mfs/mfsmaster.cfg"); err != nil {
		return nil, err
	}
	for i, h := range hosts {
		err := errors.Join(
			os.MkdirAll(o.Chunks[i], 0o755),
			h.write("etc/mfs/mfshdd.cfg", o.Chunks[i]+"\n"),
			h.write("etc/mfs/mfschunkserver.cfg", settings("WORKING_USER", "root", "WORKING_GROUP", "root", "NICE_LEVEL", "0",
				"DISABLE_OOM_KILLER", "0", "MASTER_HOST", master.IP(), "MASTER_RECONNECTION_DELAY", "1",
				"HDD_CONF_FILENAME", "/etc/mfs/mfshdd.cfg", "HDD_LEAVE_SPACE_DEFAULT", "8MiB", "HDD_TEST_SPEED", "0", "LABELS", Label(i))))
		if err != nil {
			return nil, err
		}
		if _, err := h.Start("mfschunkserver", "mfschunkserver", "-d", "-c", "/etc/mfs/mfschunkserver.cfg"); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Label returns the label of the chunk server of host i.
func Label(i int) string { return string(rune('A' + i)) }

// settings returns the text of a settings file of MooseFS. The arguments are names and values in turn.
func settings(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%s = %s\n", pairs[i], pairs[i+1])
	}
	return b.String()
}

// write writes a file that appears on the host. The path is relative to the root, and must be below etc, which is the host's
// own.
func (h *Host) write(path, text string) error {
	within, ok := strings.CutPrefix(path, "etc/")
	if !ok {
		return fmt.Errorf("storage: %s is not below etc", path)
	}
	full := filepath.Join(h.dir, "etc", within)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	return os.WriteFile(full, []byte(text), 0o644)
}

// Mount mounts the file system on a host, as Gluster.Mount does. Mount returns when the master accepts the number of copies.
func (m *Moose) Mount(ctx context.Context, h *Host, at string) (*process.Process, error) {
	client, err := h.mount(ctx, "mfsmount", at, "mfsmount", "-f", "-H", m.hosts[0].IP(), "-o", "mfsdelayedinit,allow_other", at)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	err = poll.Until(ctx, 100*time.Millisecond, func() (bool, error) {
		_, last = h.Run(ctx, "mfssetgoal", fmt.Sprint(m.copies), at)
		return last == nil, nil
	})
	if err != nil {
		return nil, errors.Join(err, last)
	}
	return client, nil
}
