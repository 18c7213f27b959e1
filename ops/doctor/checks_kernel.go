package doctor

import (
	"fmt"
	"strings"

	"penstock/node/status"
)

// lost has what is lost without a system call. The other calls are only for kernel control.
var lost = map[string]struct {
	verdict Verdict
	meaning string
}{
	"openat2":   {OK, "nothing is lost but time: the daemon opens each folder of a file's path by itself, which takes 0.03 ms in place of 0.004"},
	"cachestat": {Warn, "the daemon uses mincore, which does not distinguish written from unwritten pages: it drains some pages twice, and counts resident pages as backlog until it has drained them; the gate holds cached reads too"},
	"pidfd_open": {Warn, "the mechanisms pacing and gate of kernel control are not available, so connections and the I/O of programs without an agent " +
		"are held by the other mechanisms, or not at all"},
	"pidfd_send_signal": {Warn, "the mechanism gate of kernel control is not available, so the I/O of programs without an agent is held by the other mechanisms, or not at all"},
	"pidfd_getfd":       {Warn, "the mechanism pacing of kernel control is not available, so connections are held by the shaper, or not at all"},
}

// checkKernel reports the system calls that are missing in the daemon, or, if the daemon does not report
// them, in the doctor's process.
func checkKernel(f *Facts) []Result {
	calls, control := f.MissingCalls, true
	if f.Status != nil {
		control = f.Status.Control.Mode != "off" && f.Status.Control.Mode != ""
		if f.Status.MissingCalls != nil {
			calls = f.Status.MissingCalls
		}
	}
	linux := strings.TrimSpace("Linux " + f.KernelRelease)
	if len(calls) == 0 {
		return good("%s has all system calls that the daemon uses", linux)
	}
	var results []Result
	for _, c := range calls {
		l, known := lost[c.Name]
		switch {
		case !known: // a later daemon
			results = append(results, bad(Warn, fmt.Sprintf("%s: %s", linux, c.Why), "it is unknown what is lost", "use the penstock that belongs to the daemon")...)
		case l.verdict == OK:
			results = append(results, good("%s: %s: %s", linux, c.Why, l.meaning)...)
		case !control && isPidfd(c):
			results = append(results, good("%s: %s; only kernel control, which is off, needs it", linux, c.Why)...)
		default:
			results = append(results, bad(l.verdict, fmt.Sprintf("%s: %s", linux, c.Why), l.meaning,
				"allow the call if a filter refuses it; otherwise a later kernel has it (install.md, Older kernels)")...)
		}
	}
	return results
}

// isPidfd reports whether only kernel control needs the call.
func isPidfd(c status.MissingCall) bool { return strings.HasPrefix(c.Name, "pidfd_") }
