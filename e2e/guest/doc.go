// Package guest tests features that this machine's kernel may not have in a small virtual machine, the
// guest: limits and weights of cgroup v2, the freezer of cgroup v2, and directories on volumes of the device
// mapper. The guest has the kernels of Debian 12 (6.1) and Debian 11 (5.10).
//
// The test binary is also the guest's only program. On the machine, TestGuest boots the guest. In the
// guest, the tests of the list inside run. A test of the list has passed if the guest prints its PASS line.
package guest
