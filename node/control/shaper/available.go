package shaper

import (
	"fmt"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netns"
)

// Available returns nil if this process and its kernel can shape connections. Otherwise the error
// says why not and what to do. It tries all that is needed on the loopback interface of a network
// namespace that nobody else sees, and which ends with the trial. The kernel may load modules for it
// (sch_htb, cls_u32, act_mirred, ifb). It needs CAP_SYS_ADMIN besides CAP_NET_ADMIN.
func Available() error {
	done := make(chan error)
	go func() {
		// The thread is never unlocked, so it ends with the goroutine, and the namespace with it.
		runtime.LockOSThread()
		done <- try()
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("shaping of connections by tc: %w", err)
	}
	return nil
}

func try() error {
	ns, err := netns.New()
	if err != nil {
		return fmt.Errorf("make a network namespace for a trial, which needs CAP_SYS_ADMIN: run the daemon as root: %w", err)
	}
	defer ns.Close()
	k, err := newKernel()
	if err != nil {
		return err
	}
	defer k.Close()
	link, err := k.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("loopback of the trial's namespace: %w", err)
	}
	index := link.Attrs().Index
	from, to := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")
	if err := k.addRoot(index); err != nil {
		return err
	}
	spec := describe(link, index, Floor, to.Addr())
	spec.minor = 1
	if err := k.addClass(spec, from, to); err != nil {
		return err
	}
	if err := k.changeClass(spec); err != nil {
		return err
	}
	device, err := k.addDevice(index)
	if err != nil {
		return err
	}
	if err := k.addIngress(index); err != nil {
		return err
	}
	return k.addRedirect(index, device, 1, from, to)
}
