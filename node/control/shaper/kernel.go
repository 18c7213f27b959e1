package shaper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// major is the major number of our HTB's handle. The majors after it are those of the classes'
	// queues. `tc qdisc show` prints it in hexadecimal: 5053, which is "PS" in ASCII.
	major      = 0x5053
	rootHandle = major << 16

	quantum      = 64 << 10 // bytes
	devicePrefix = "penstock"
	noDevice     = -1
)

// kernel changes the network configuration, in the network namespace in which newKernel was called.
type kernel struct {
	*netlink.Handle
	// sockets are for the requests that the library netlink does not have.
	sockets map[int]*nl.SocketHandle
}

func newKernel() (kernel, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return kernel{}, fmt.Errorf("connect to the kernel's network configuration (netlink): %w", err)
	}
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		return kernel{}, fmt.Errorf("connect to the kernel's network configuration (netlink): %w", err)
	}
	return kernel{h, map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}}, nil
}

func (k kernel) Close() {
	k.Handle.Close()
	k.sockets[unix.NETLINK_ROUTE].Close()
}

// route returns the interface through which an address is reached, and whether it is on this machine.
func (k kernel) route(to netip.Addr) (name string, here bool, err error) {
	routes, err := k.RouteGet(to.AsSlice())
	if err == nil && len(routes) == 0 {
		err = errors.New("no route")
	}
	if err != nil {
		return "", false, fmt.Errorf("find the interface to %v: %w", to, err)
	}
	link, err := k.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", false, fmt.Errorf("the interface to %v: %w", to, err)
	}
	return link.Attrs().Name, routes[0].Type == unix.RTN_LOCAL, nil
}

// rootOf returns the kind of an interface's queueing discipline. It returns an error if somebody else has set
// the discipline.
func (k kernel) rootOf(link netlink.Link) (string, error) {
	name := link.Attrs().Name
	all, err := k.QdiscList(link)
	if err != nil {
		return "", fmt.Errorf("list the queueing disciplines of %s: %w", name, err)
	}
	kind := "noqueue"
	for _, q := range all {
		a := q.Attrs()
		if isIngress(q) {
			continue
		}
		if isOurRoot(q) {
			// An earlier daemon has left the discipline, and its journal is lost.
			return "the kernel's default", nil
		}
		if a.Handle != 0 {
			return "", fmt.Errorf("the interface %s has the queueing discipline %s %s, which is not the kernel's default and stays as it is: govern the interface there, or delete the discipline (tc qdisc del dev %s root)",
				name, q.Type(), netlink.HandleStr(a.Handle), name)
		}
		if a.Parent == netlink.HANDLE_ROOT {
			kind = q.Type()
		}
	}
	return kind, nil
}

func isIngress(q netlink.Qdisc) bool { return q.Attrs().Parent == netlink.HANDLE_INGRESS }

func isOurRoot(q netlink.Qdisc) bool {
	return q.Type() == "htb" && q.Attrs().Parent == netlink.HANDLE_ROOT && q.Attrs().Handle == rootHandle
}

// hasOurRoot reports whether an interface has our HTB.
func (k kernel) hasOurRoot(link netlink.Link) (bool, error) {
	all, err := k.QdiscList(link)
	if err != nil {
		return false, fmt.Errorf("list the queueing disciplines of %s: %w", link.Attrs().Name, err)
	}
	return slices.ContainsFunc(all, isOurRoot), nil
}

// isOurs returns an error if somebody has replaced or deleted what the shaper has made at a place.
func (k kernel) isOurs(here *side) error {
	gone := func(what string) error {
		return fmt.Errorf("%s of %s was replaced or deleted by somebody else, so its connections are no longer held: try again", what, here.name)
	}
	link, err := k.LinkByIndex(here.classes)
	if err != nil {
		return gone("the device of the incoming packets")
	}
	ours, err := k.hasOurRoot(link)
	if err != nil {
		return err
	}
	if !ours {
		return gone("the queueing discipline")
	}
	link, err = k.LinkByIndex(here.index)
	if err != nil || link.Attrs().Name != here.name {
		return gone("the interface")
	}
	if !here.ingress {
		return nil
	}
	has, err := k.hasIngress(link)
	if err == nil && !has {
		err = gone("the queueing discipline of the incoming packets")
	}
	return err
}

func htb(link int) *netlink.Htb {
	return netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: link, Handle: rootHandle, Parent: netlink.HANDLE_ROOT})
}

// addRoot makes our HTB. Packets without a class pass HTB at once.
func (k kernel) addRoot(link int) error {
	if err := k.deleteRoot(link); err != nil {
		return err
	}
	if err := k.QdiscAdd(htb(link)); err != nil {
		return fmt.Errorf("make the queueing discipline (htb; needs the kernel's sch_htb and CAP_NET_ADMIN): %w", err)
	}
	return nil
}

// deleteRoot deletes our HTB, if it is there, with its classes and filters.
func (k kernel) deleteRoot(index int) error {
	link, err := k.LinkByIndex(index)
	if missing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the interface %d: %w", index, err)
	}
	ours, err := k.hasOurRoot(link)
	if err != nil || !ours {
		return err
	}
	if err := k.QdiscDel(htb(index)); err != nil && !missing(err) {
		return fmt.Errorf("delete the queueing discipline %s of %s: %w", netlink.HandleStr(rootHandle), link.Attrs().Name, err)
	}
	return nil
}

// deviceName is the name of the IFB device of an interface.
func deviceName(index int) string { return devicePrefix + strconv.Itoa(index) }

// deviceAddress returns the hardware address of the IFB device of an interface. The address is a locally
// administered one, and shows that the device is ours.
func deviceAddress(index int) net.HardwareAddr {
	return binary.BigEndian.AppendUint32(net.HardwareAddr{0x02, 'P'}, uint32(index))
}

// device returns our IFB device of an interface, or nil if there is none.
func (k kernel) device(index int) (netlink.Link, error) {
	link, err := k.LinkByName(deviceName(index))
	switch {
	case missing(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the interface %s: %w", deviceName(index), err)
	case link.Type() != "ifb" || !bytes.Equal(link.Attrs().HardwareAddr, deviceAddress(index)):
		return nil, nil
	}
	return link, nil
}

// addDevice makes the IFB device of an interface, with our HTB, and returns its index.
func (k kernel) addDevice(index int) (int, error) {
	if err := k.deleteDevice(index); err != nil {
		return 0, err
	}
	a := netlink.NewLinkAttrs()
	a.Name, a.HardwareAddr = deviceName(index), deviceAddress(index)
	err := k.LinkAdd(&netlink.Ifb{LinkAttrs: a})
	if errors.Is(err, unix.EEXIST) {
		return 0, fmt.Errorf("an interface with the name %s was made by somebody else: rename it", a.Name)
	}
	if err != nil {
		return 0, fmt.Errorf("make the device %s (ifb; needs the kernel's ifb and CAP_NET_ADMIN): %w", a.Name, err)
	}
	link, err := k.device(index)
	if err == nil && link == nil {
		err = fmt.Errorf("the device %s has disappeared", a.Name)
	}
	if err == nil {
		err = k.LinkSetUp(link)
	}
	if err != nil {
		return 0, fmt.Errorf("bring the device %s up: %w", a.Name, err)
	}
	return link.Attrs().Index, k.addRoot(link.Attrs().Index)
}

// deleteDevice deletes the IFB device of an interface, if it exists. It first deletes the filters that send
// packets to the device.
func (k kernel) deleteDevice(index int) error {
	device, err := k.device(index)
	if err != nil || device == nil {
		return err
	}
	link, err := k.LinkByIndex(index)
	if err != nil && !missing(err) {
		return fmt.Errorf("the interface %d: %w", index, err)
	}
	if err == nil {
		if _, err := k.deleteRedirects(link, device.Attrs().Index); err != nil {
			return err
		}
	}
	if err := k.LinkDel(device); err != nil && !missing(err) {
		return fmt.Errorf("delete the device %s: %w", device.Attrs().Name, err)
	}
	return nil
}

func ingress(link int) *netlink.Ingress {
	return &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}}
}

// hasIngress reports whether an interface has a queueing discipline for incoming packets.
func (k kernel) hasIngress(link netlink.Link) (bool, error) {
	all, err := k.QdiscList(link)
	if err != nil {
		return false, fmt.Errorf("list the queueing disciplines of %s: %w", link.Attrs().Name, err)
	}
	return slices.ContainsFunc(all, isIngress), nil
}

// freeIngress returns an error if somebody else has set a queueing discipline for incoming packets. This
// discipline cannot have a handle of our own, so one of an earlier daemon is recognised by its filters.
func (k kernel) freeIngress(link netlink.Link) error {
	has, err := k.hasIngress(link)
	if err != nil || !has {
		return err
	}
	device, err := k.device(link.Attrs().Index)
	if err != nil {
		return err
	}
	if device != nil {
		if err := k.deleteIngress(link, device.Attrs().Index); err != nil {
			return err
		}
		if has, err = k.hasIngress(link); err != nil || !has {
			return err
		}
	}
	name := link.Attrs().Name
	return fmt.Errorf("the interface %s has a queueing discipline for incoming packets, which stays as it is: govern the incoming packets there, or delete the discipline (tc qdisc del dev %s ingress)", name, name)
}

func (k kernel) addIngress(link int) error {
	if err := k.QdiscAdd(ingress(link)); err != nil {
		return fmt.Errorf("make the queueing discipline of incoming packets (ingress; needs the kernel's sch_ingress and CAP_NET_ADMIN): %w", err)
	}
	return nil
}

// deleteIngress deletes the filters that redirect to a device. If no filter of somebody else is left, it also
// deletes the queueing discipline of the incoming packets.
func (k kernel) deleteIngress(link netlink.Link, device int) error {
	has, err := k.hasIngress(link)
	if err != nil || !has {
		return err
	}
	left, err := k.deleteRedirects(link, device)
	if err != nil || left > 0 {
		return err
	}
	if err := k.QdiscDel(ingress(link.Attrs().Index)); err != nil && !missing(err) {
		return fmt.Errorf("delete the queueing discipline of incoming packets of %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// deleteRedirects deletes the filters that redirect an interface's incoming packets to a device, and
// returns the number of other filters.
func (k kernel) deleteRedirects(link netlink.Link, device int) (left int, err error) {
	has, err := k.hasIngress(link)
	if err != nil || !has {
		return 0, err
	}
	all, err := k.FilterList(link, ingressParent)
	if err != nil {
		return 0, fmt.Errorf("list the filters of incoming packets of %s: %w", link.Attrs().Name, err)
	}
	var ours []netlink.FilterAttrs
	for _, f := range all {
		u, is := f.(*netlink.U32)
		switch {
		case is && u.Sel == nil: // a hash table of the filters
		case is && u.RedirIndex == device:
			ours = append(ours, u.FilterAttrs)
		default:
			left++
		}
	}
	return left, k.deleteAll(ours)
}

// ingressParent is the parent of the filters of incoming packets.
var ingressParent = netlink.MakeHandle(0xffff, 0)

// classSpec describes a class.
type classSpec struct {
	link  int
	minor uint16
	rate  uint64 // bytes per second on the wire
	queue uint64 // bytes that may wait
}

// describe returns the class that limits the payload to an address to a rate. classes is the index of the
// device that has the classes of link.
func describe(link netlink.Link, classes int, rate uint64, to netip.Addr) classSpec {
	a := link.Attrs()
	s := classSpec{link: classes, rate: onWire(rate, a.MTU, to)}
	// The queue must have room for two segments, because TCP sends at least two at a time. On loopback they
	// are larger than segmentation offload makes them. The headers of the segments count, too.
	packet := max(uint64(a.GSOMaxSize), 2*uint64(a.MTU), 1<<16)
	s.queue = max(s.rate/40, 2*(packet+packet/16))
	return s
}

func (s classSpec) handle() uint32 { return rootHandle | uint32(s.minor) }

// class returns the class for HTB. The class may send at once what it sends in a hundredth of a second, and
// a quantum. This compensates for timers that are late.
func (s classSpec) class() *netlink.HtbClass {
	burst := uint32(s.rate/100 + quantum)
	return netlink.NewHtbClass(netlink.ClassAttrs{LinkIndex: s.link, Parent: rootHandle, Handle: s.handle()},
		netlink.HtbClassAttrs{Rate: 8 * s.rate, Ceil: 8 * s.rate, Buffer: burst, Cbuffer: burst, Quantum: quantum})
}

// setQueue bounds the queue of a class, in bytes (bfifo). The library netlink cannot set this bound.
func (k kernel) setQueue(s classSpec, flags int) error {
	r := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, flags|unix.NLM_F_ACK)
	r.Sockets = k.sockets
	r.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(s.link), Handle: rootHandle + uint32(s.minor)<<16, Parent: s.handle()})
	r.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bfifo")))
	r.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, nl.Uint32Attr(uint32(s.queue))))
	if _, err := r.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("bound the queue of a class (bfifo): %w", err)
	}
	return nil
}

// addClass makes a class and the filter that finds its packets.
func (k kernel) addClass(s classSpec, from, to netip.AddrPort) error {
	if err := k.ClassAdd(s.class()); err != nil {
		return fmt.Errorf("make a class (htb): %w", err)
	}
	if err := k.setQueue(s, unix.NLM_F_CREATE|unix.NLM_F_EXCL); err != nil {
		return err
	}
	for _, f := range filters(s.minor, from, to) {
		f.LinkIndex, f.Parent, f.ClassId = s.link, rootHandle, s.handle()
		if err := k.FilterAdd(f); err != nil {
			return fmt.Errorf("make a filter (u32; needs the kernel's cls_u32): %w", err)
		}
	}
	return nil
}

// changeClass changes the rate of a class.
func (k kernel) changeClass(s classSpec) error {
	if err := k.ClassChange(s.class()); err != nil {
		return fmt.Errorf("change the rate of a class (htb): %w", err)
	}
	return k.setQueue(s, 0)
}

// addRedirect redirects a connection's incoming packets to a device.
func (k kernel) addRedirect(link, device int, minor uint16, from, to netip.AddrPort) error {
	for _, f := range filters(minor, from, to) {
		f.LinkIndex, f.Parent = link, ingressParent
		f.Actions = []netlink.Action{netlink.NewMirredAction(device)}
		if err := k.FilterAdd(f); err != nil {
			return fmt.Errorf("redirect incoming packets (u32 and mirred; needs the kernel's cls_u32 and act_mirred): %w", err)
		}
	}
	return nil
}

// deleteClass deletes a connection's class and filter, if they are there.
func (k kernel) deleteClass(link netlink.Link, minor uint16, from, to netip.AddrPort) error {
	ours, err := k.hasOurRoot(link)
	if err != nil || !ours {
		return err
	}
	s := classSpec{link: link.Attrs().Index, minor: minor}
	other, err := k.deleteFilters(link, rootHandle, minor, from, to)
	if err != nil || other {
		return err
	}
	err = k.ClassDel(&netlink.HtbClass{ClassAttrs: netlink.ClassAttrs{LinkIndex: s.link, Parent: rootHandle, Handle: s.handle()}})
	if err != nil && !missing(err) {
		return fmt.Errorf("delete a class (htb) of %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// deleteFilters deletes the filters of a class, if they are there. It reports whether the class has
// a filter for another connection.
func (k kernel) deleteFilters(link netlink.Link, parent uint32, minor uint16, from, to netip.AddrPort) (other bool, err error) {
	all, err := k.FilterList(link, parent)
	if err != nil {
		return false, fmt.Errorf("list the filters of %s: %w", link.Attrs().Name, err)
	}
	wanted := filters(minor, from, to)
	var ours []netlink.FilterAttrs
	for _, f := range all {
		u, is := f.(*netlink.U32)
		if !is || u.Sel == nil || u.Priority != minor {
			continue
		}
		same := func(want *netlink.U32) bool {
			return u.Protocol == want.Protocol && slices.Equal(u.Sel.Keys, want.Sel.Keys)
		}
		if slices.ContainsFunc(wanted, same) {
			ours = append(ours, u.FilterAttrs)
		} else {
			other = true
		}
	}
	return other, k.deleteAll(ours)
}

// deleteAll deletes filters.
func (k kernel) deleteAll(all []netlink.FilterAttrs) error {
	for _, a := range all {
		if err := k.FilterDel(&netlink.U32{FilterAttrs: a}); err != nil && !missing(err) {
			return fmt.Errorf("delete a filter (u32): %w", err)
		}
	}
	return nil
}

// filters returns the filters for the packets of a connection, in one direction.
func filters(priority uint16, from, to netip.AddrPort) []*netlink.U32 {
	const all = ^uint32(0)
	addresses := func(offset int32) (keys []nl.TcU32Key) {
		for b := append(from.Addr().AsSlice(), to.Addr().AsSlice()...); len(b) > 0; b = b[4:] {
			keys = append(keys, nl.TcU32Key{Off: offset, Mask: all, Val: binary.BigEndian.Uint32(b)})
			offset += 4
		}
		return keys
	}
	ports := func(offset int32) nl.TcU32Key {
		return nl.TcU32Key{Off: offset, Mask: all, Val: uint32(from.Port())<<16 | uint32(to.Port())}
	}
	match := func(protocol uint16, keys ...nl.TcU32Key) *netlink.U32 {
		return &netlink.U32{
			FilterAttrs: netlink.FilterAttrs{Priority: priority, Protocol: protocol},
			Sel:         &nl.TcU32Sel{Flags: nl.TC_U32_TERMINAL, Keys: slices.Clip(keys)},
		}
	}
	if from.Addr().Is4() {
		return []*netlink.U32{match(unix.ETH_P_IP, append(addresses(12), ports(20),
			nl.TcU32Key{Off: 0, Mask: 0x0f000000, Val: 0x05000000},                  // a header without options, so that the ports are where they are expected
			nl.TcU32Key{Off: 4, Mask: 0x00001fff},                                   // not a later fragment, which has no ports
			nl.TcU32Key{Off: 8, Mask: 0x00ff0000, Val: unix.IPPROTO_TCP << 16})...)} // TCP
	}
	const hopByHop = 0
	return []*netlink.U32{
		match(unix.ETH_P_IPV6, append(addresses(8), ports(40),
			nl.TcU32Key{Off: 4, Mask: 0x0000ff00, Val: unix.IPPROTO_TCP << 8})...),
		// The kernel gives packets above 64 KiB a header of 8 bytes with the true length. Loopback
		// has such packets, and interfaces with "big TCP".
		match(unix.ETH_P_IPV6, append(addresses(8), ports(48),
			nl.TcU32Key{Off: 4, Mask: 0x0000ff00, Val: hopByHop << 8},
			nl.TcU32Key{Off: 40, Mask: 0xffff0000, Val: unix.IPPROTO_TCP << 24})...),
	}
}
