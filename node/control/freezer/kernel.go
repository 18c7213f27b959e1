package freezer

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"penstock/node/control/cgroup"
)

// States of a cgroup by its own setting. The cgroups above it have no influence on them.
const (
	frozen = "frozen"
	thawed = "thawed"
)

const controller = "freezer"

// Files of cgroups. The first two are of v1. fileSelf has the cgroup's own setting, which fileV1
// does not show if a cgroup above is frozen.
const (
	fileV1   = "freezer.state"
	fileSelf = "freezer.self_freezing"
	fileV2   = "cgroup.freeze"
)

// OfProcess returns the cgroup by which a process can be frozen. This is a cgroup of v1 if the freezer of v1
// is mounted and the process is not in its root. Otherwise it is a cgroup of v2, which needs Linux 5.2.
func OfProcess(pid int) (cgroup.Group, error) {
	var errs []error
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		h, err := cgroup.Find(version, controller)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		g, err := h.OfProcess(pid)
		if err == nil && g.Root() {
			err = fmt.Errorf("cgroup %s: the root cannot be frozen: move the process to a cgroup of its own", g)
		}
		if err == nil {
			_, err = targetOf(g).read()
		}
		if err == nil {
			return g, nil
		}
		errs = append(errs, err)
	}
	return cgroup.Group{}, fmt.Errorf("process %d cannot be frozen: %w", pid, errors.Join(errs...))
}

// Available returns nil if cgroups can be frozen on this machine. Otherwise the error says why not and what
// to do.
func Available() error {
	var errs []error
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		h, err := cgroup.Find(version, controller)
		if err == nil {
			if err = unix.Faccessat(unix.AT_FDCWD, filepath.Join(h.Mount, "cgroup.procs"), unix.W_OK, unix.AT_EACCESS); err == nil {
				return nil
			}
			err = fmt.Errorf("write to the files of cgroup %s at %s: %w; run the daemon as root, outside of containers with read-only cgroups", h.Version, h.Mount, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// target is a cgroup in the journal.
type target struct {
	version cgroup.Version
	id      uint64
	path    string
}

func targetOf(g cgroup.Group) target { return target{g.Hierarchy.Version, g.ID, g.Path} }

// String returns the Target of the change, with the path last, since it may contain spaces.
func (t target) String() string { return fmt.Sprintf("%s %d %s", t.version, t.id, t.path) }

// parseTarget parses the text that String returns.
func parseTarget(text string) (t target, err error) {
	fields := strings.SplitN(text, " ", 3)
	if len(fields) != 3 {
		return target{}, fmt.Errorf("%q does not name a cgroup", text)
	}
	switch fields[0] {
	case "v1":
		t.version = cgroup.V1
	case "v2":
		t.version = cgroup.V2
	}
	t.id, err = strconv.ParseUint(fields[1], 10, 64)
	t.path = fields[2]
	if err != nil || t.version == 0 || t.String() != text {
		return target{}, fmt.Errorf("%q does not name a cgroup", text)
	}
	return t, nil
}

func (t target) group() (cgroup.Group, error) {
	h, err := cgroup.Find(t.version, controller)
	return cgroup.Group{Hierarchy: h, Path: t.path, ID: t.id}, err
}

func (t target) open() (*cgroup.Folder, error) {
	g, err := t.group()
	if err != nil {
		return nil, err
	}
	return g.Open()
}

// read returns the cgroup's own state.
func (t target) read() (string, error) {
	f, err := t.open()
	if err != nil {
		return "", err
	}
	defer f.Close()
	return stateOf(t.version, f)
}

func stateOf(version cgroup.Version, f *cgroup.Folder) (string, error) {
	file := fileSelf
	if version == cgroup.V2 {
		file = fileV2
	}
	value, err := f.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: this kernel cannot freeze the cgroup (v2 needs Linux 5.2)", err)
	}
	if err != nil {
		return "", err
	}
	if value == "0" {
		return thawed, nil
	}
	return frozen, nil
}

// write freezes or thaws a cgroup.
func write(version cgroup.Version, f *cgroup.Folder, state string) error {
	switch {
	case version == cgroup.V2 && state == frozen:
		return f.Write(fileV2, "1")
	case version == cgroup.V2:
		return f.Write(fileV2, "0")
	}
	return f.Write(fileV1, strings.ToUpper(state))
}

// thaw thaws the cgroup if it is frozen.
func (t target) thaw() error {
	f, err := t.open()
	if err != nil {
		return err
	}
	defer f.Close()
	state, err := stateOf(t.version, f)
	if err != nil || state == thawed {
		return err
	}
	return write(t.version, f, thawed)
}

// freeze freezes the cgroup. It returns an error if the cgroup contains a protected process or is frozen
// already. It also returns the function that thaws the cgroup, which uses the folder that is open already,
// so that thawing cannot fail at the opening of the folder.
func (t target) freeze(protected []int) (thaw func() error, err error) {
	g, err := t.group()
	if err != nil {
		return nil, err
	}
	f, err := g.Open()
	if err != nil {
		return nil, err
	}
	err = f.Refuse(protected)
	if err == nil {
		var state string
		if state, err = stateOf(t.version, f); err == nil && state == frozen {
			err = errFrozen(g)
		}
	}
	if err == nil {
		err = write(t.version, f, frozen)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { return errors.Join(write(t.version, f, thawed), f.Close()) }, nil
}

func errFrozen(g cgroup.Group) error {
	return fmt.Errorf("cgroup %s: somebody else has frozen this cgroup, so the freezer leaves it alone", g)
}

// refuse returns an error if the cgroup must not be frozen.
func refuse(g cgroup.Group, protected []int) error {
	f, err := g.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Refuse(protected)
}
