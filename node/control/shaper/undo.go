package shaper

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"penstock/node/control/journal"
)

// Kinds of changes. The class of a connection has the kind egress or ingress.
const (
	kindRoot    = "root"
	kindDevice  = "ifb"
	kindIngress = "incoming"
	kindEgress  = "egress"
	kindIn      = "ingress"
)

// target is the Target of a change in the journal.
type target struct {
	index    int    // of the interface
	name     string // of the interface
	kind     string
	from, to netip.AddrPort // of a connection
}

func (t target) String() string {
	text := fmt.Sprintf("%d %s %s", t.index, t.name, t.kind)
	if t.isConnection() {
		text += fmt.Sprintf(" %v>%v", t.from, t.to)
	}
	return text
}

func (t target) isConnection() bool { return t.kind == kindEgress || t.kind == kindIn }

// parseTarget is the inverse of target.String.
func parseTarget(text string) (t target, err error) {
	bad := fmt.Errorf("%q in the journal is not a change of an interface", text)
	words := strings.Fields(text)
	if len(words) < 3 {
		return target{}, bad
	}
	if t.index, err = strconv.Atoi(words[0]); err != nil || t.index <= 0 {
		return target{}, bad
	}
	t.name, t.kind = words[1], words[2]
	switch {
	case t.isConnection() && len(words) == 4:
		from, to, _ := strings.Cut(words[3], ">")
		var err2 error
		t.from, err = netip.ParseAddrPort(from)
		t.to, err2 = netip.ParseAddrPort(to)
		if err != nil || err2 != nil || t.from.Addr().Is4() != t.to.Addr().Is4() {
			return target{}, bad
		}
	case (t.kind == kindRoot || t.kind == kindDevice || t.kind == kindIngress) && len(words) == 3:
	default:
		return target{}, bad
	}
	if t.String() != text {
		return target{}, bad
	}
	return t, nil
}

// parseMinor returns the minor number of the class in a connection's value in the journal.
func parseMinor(value string) (uint16, error) {
	var minor uint16
	var rate uint64
	if _, err := fmt.Sscanf(value, "class %d, %d B/s", &minor, &rate); err != nil || minor == 0 || minor > MaxConnections || classText(minor, rate) != value {
		return 0, fmt.Errorf("%q in the journal is not the class of a connection", value)
	}
	return minor, nil
}

// Undo deletes what c has made, in the caller's network namespace. It does nothing if the interface no longer
// exists, or if somebody else has replaced what c has made. When Undo deletes our queueing discipline, the
// kernel puts its own default back.
func Undo(c journal.Change) error {
	t, err := parseTarget(c.Target)
	if err != nil {
		return err
	}
	k, err := newKernel()
	if err != nil {
		return err
	}
	defer k.Close()
	link, err := k.LinkByIndex(t.index)
	if err != nil && !missing(err) {
		return fmt.Errorf("the interface %s: %w", t.name, err)
	}
	switch {
	case t.kind == kindDevice:
		return k.deleteDevice(t.index) // also if the interface is gone
	case err != nil:
		return nil
	case t.kind == kindRoot:
		return k.deleteRoot(t.index)
	case t.kind == kindIngress:
		device, err := k.device(t.index)
		if err != nil {
			return err
		}
		index := noDevice
		if device != nil {
			index = device.Attrs().Index
		} else if link.Attrs().Name != t.name {
			return nil // nothing shows that the discipline is ours
		}
		return k.deleteIngress(link, index)
	}
	minor, err := parseMinor(c.After)
	if err != nil {
		return err
	}
	return k.undoConnection(link, t, minor)
}

func (k kernel) undoConnection(link netlink.Link, t target, minor uint16) error {
	if t.kind == kindEgress {
		return k.deleteClass(link, minor, t.from, t.to)
	}
	// The redirection is deleted first: no packet must reach the device when its class is deleted.
	has, err := k.hasIngress(link)
	if err != nil {
		return err
	}
	if has {
		if _, err := k.deleteFilters(link, ingressParent, minor, t.from, t.to); err != nil {
			return err
		}
	}
	device, err := k.device(t.index)
	if err != nil || device == nil {
		return err
	}
	return k.deleteClass(device, minor, t.from, t.to)
}
