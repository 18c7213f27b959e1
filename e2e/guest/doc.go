// Package guest tests in a small guest what this machine's kernel cannot do: limits and weights of
// cgroup v2, its freezer, and directories on the device mapper's volumes.
//
// The test binary is at the same time the guest's only program. On the machine, TestGuest boots the
// guest; in the guest, the tests of the list inside run. A test of the list is judged by the line
// that it prints.
package guest
