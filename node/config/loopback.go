package config

import (
	"fmt"
	"net/netip"
)

// checkLoopback checks the address for agents on JVMs without Unix sockets. Agents verify who listens
// there in the kernel's tables, and know only this address.
func checkLoopback(address string) error {
	p, err := netip.ParseAddrPort(address)
	if err != nil || p.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		return fmt.Errorf("loopback %q: give 127.0.0.1 and a port, such as 127.0.0.1:0 (0: any that is free), or \"off\"", address)
	}
	return nil
}
