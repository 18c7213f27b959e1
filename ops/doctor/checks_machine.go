package doctor

import (
	"fmt"
	"strings"

	"penstock/node/status"
)

// Checks of devices, kernel, JVM and Hadoop.

// Minimum versions: Java has Unix sockets since 16. The agent runs on Java 8. The Hadoop versions are
// those with which the agent is tested.
var (
	leastJava   = 8
	unixSockets = 16 // of Java
	hadoopLines = map[string]string{"3.1": "3.1.4", "3.2": "3.2.4", "3.3": "3.3.6", "3.4": "3.4.2", "3.5": "3.5.0"}
)

// each runs judge on every device. It returns judge's results, and one good result, with the text
// well, for all devices on which judge found nothing.
func each(f *Facts, well string, judge func(d status.Device) []Result) []Result {
	if f.Status == nil || len(f.Status.Devices) == 0 {
		return nil
	}
	var results []Result
	var fine []string
	for _, d := range f.Status.Devices {
		if r := judge(d); r != nil {
			results = append(results, r...)
		} else {
			fine = append(fine, d.Name)
		}
	}
	if len(fine) > 0 {
		results = append(results, good("%s: %s", strings.Join(fine, ", "), well)...)
	}
	return results
}

func checkDevices(f *Facts) []Result {
	return each(f, "answering, as fast as usual", func(d status.Device) []Result {
		switch {
		case !d.Answered:
			return bad(Fail, d.Name+": its loop does not answer", "agents open all their gates", "check the kernel's log; restart the daemon and report this")
		case d.Stuck:
			return bad(Fail, d.Name+": has not answered a request in time", "its streams are let through until it does",
				"check the kernel's log and the disk's health; HDFS has the same delay")
		case d.SlowFactor > 1:
			return bad(Warn, fmt.Sprintf("%s: %.0f times slower than when it was healthy", d.Name, d.SlowFactor),
				"every application on it is slower, by its share", "check the disk's health and other users of the disk: penstock top shows foreign I/O")
		case !d.Kernel.Counted:
			return bad(Warn, d.Name+": there is no block device under "+strings.Join(d.Directories, ", "),
				"on a memory, overlay or network file system there is no device to share", "put data directories on local disks")
		case d.Errors > 0:
			return bad(Warn, fmt.Sprintf("%s: %d requests failed", d.Name, d.Errors), "the blocks concerned were not governed", "find them in the daemon's log")
		}
		return nil
	})
}

func checkScheduler(f *Facts) []Result {
	return each(f, "a fitting kernel scheduler", func(d status.Device) []Result {
		if !d.Kernel.Counted {
			return nil
		}
		use := "echo mq-deadline > /sys/block/" + d.Name + "/queue/scheduler, and a udev rule to keep it"
		switch s := d.Kernel.Scheduler; {
		case s == "mq-deadline", !d.Rotational && (s == "none" || s == "kyber"):
			return nil
		case s == "":
			return bad(Warn, d.Name+": the kernel's scheduler is unknown", "it is unknown whether it works against Penstock's order", use)
		case s == "none":
			return bad(Warn, d.Name+": none, on a hard disk", "requests in flight reach the disk unsorted, which causes more seeks than necessary", use)
		case s == "bfq":
			return bad(Warn, d.Name+": bfq", "it divides the disk between processes, and all governed I/O is in one, the daemon: two schedulers in a row, and idling between requests", use)
		default:
			return bad(Warn, d.Name+": "+s, "Penstock was measured over mq-deadline (none, on flash)", use)
		}
	})
}

func checkQueue(f *Facts) []Result {
	return each(f, "the kernel's queue holds what D allows", func(d status.Device) []Result {
		k := d.Kernel
		if k.RequestKB > 0 && k.Requests > 0 {
			pieces := (d.QuantumBytes + k.RequestKB<<10 - 1) / (k.RequestKB << 10)
			if need := pieces * int64(d.DepthMax); need > k.Requests {
				return bad(Warn, fmt.Sprintf("%s: nr_requests is %d; D at its bound is %d requests of %d KiB", d.Name, k.Requests, need, k.RequestKB),
					"requests wait for a place in the kernel's queue, unseen by the daemon, and delay requests of other applications",
					fmt.Sprintf("set /sys/block/%s/queue/nr_requests to at least %d, or lower depth.max", d.Name, need))
			}
		}
		if k.ReadaheadKB<<10 > d.QuantumBytes {
			return bad(Warn, fmt.Sprintf("%s: read_ahead_kb is %d, more than a quantum of %d KiB", d.Name, k.ReadaheadKB, d.QuantumBytes>>10),
				"for a reader that bypasses Penstock, the kernel reads ahead more than other readers may read in a turn",
				fmt.Sprintf("set /sys/block/%s/queue/read_ahead_kb to %d or less", d.Name, d.QuantumBytes>>10))
		}
		return nil
	})
}

func checkProfile(f *Facts) []Result {
	return each(f, "costs from a profile", func(d status.Device) []Result {
		if d.Profiled || !d.Kernel.Counted {
			return nil
		}
		return bad(Warn, d.Name+": no profile", "costs and reference latencies are those of a typical disk of its kind, so D may settle too low or too high",
			"run penstock profile on it in a quiet hour, and name its file as \"profile\" below \"device\" in the settings")
	})
}

func checkDirtyLimits(f *Facts) []Result {
	switch {
	case f.Status == nil || len(f.Status.Devices) == 0:
		return nil
	case f.Memory.Err != nil:
		return bad(Warn, f.Memory.Err.Error(), "the kernel's dirty limits are unknown", "run the doctor on the node itself")
	}
	var sum int64
	for _, d := range f.Status.Devices {
		if d.Kernel.Counted { // a network device has no writeback
			sum += d.DirtyBound + d.LazyBound
		}
	}
	found := fmt.Sprintf("the kernel begins writeback at %s and stops writers at %s; backlogs may reach %s",
		mib(f.Memory.background()), mib(f.Memory.dirty()), mib(sum))
	remedy := fmt.Sprintf("set vm.dirty_background_bytes well above %d, or lower \"dirty\" and \"lazy\" in the daemon's settings", sum)
	switch {
	case f.Memory.dirty() <= sum:
		return bad(Fail, found, "one application's backlog can make the kernel stop all writers, regardless of weights", remedy+"; and vm.dirty_bytes above that")
	case f.Memory.background() <= sum:
		return bad(Warn, found, "the kernel writes data back without Penstock, in its own order", remedy)
	}
	return good("%s", found)
}

func mib(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

func checkJava(f *Facts) []Result {
	if f.DataNode.Err != nil || f.DataNode.Java == "" {
		return nil
	}
	n, err := parseJava(f.DataNode.Java)
	switch {
	case err != nil:
		return bad(Warn, err.Error(), "it is unknown whether the agent can connect", "the agent needs Java 16 or later (from 8 on with \"loopback\" in the daemon's settings)")
	case n < leastJava:
		return bad(Fail, fmt.Sprintf("the DataNode runs on Java %d", n), "the agent does nothing", "run the DataNode on Java 8 or later")
	case n < unixSockets && (f.Status == nil || f.Status.Loopback.Listen == ""):
		return bad(Fail, fmt.Sprintf("the DataNode runs on Java %d", n), "it has no Unix sockets, so the agent cannot connect, and governs nothing",
			"set \"loopback\" to 127.0.0.1:0 in the daemon's settings (install.md), or run the DataNode on Java 17 or later")
	case n < unixSockets:
		return good("Java %d, without Unix sockets: the agent connects by loopback", n)
	}
	return good("Java %d", n)
}

func checkHadoop(f *Facts) []Result {
	if f.DataNode.Err != nil || f.DataNode.Version == "" {
		return nil
	}
	major, minor, err := parseRelease(f.DataNode.Version)
	tested, ok := hadoopLines[fmt.Sprintf("%d.%d", major, minor)]
	switch {
	case err != nil || !ok:
		return bad(Warn, "Hadoop "+f.DataNode.Version, "the agent is not tested with it; it leaves out what this Hadoop lacks the methods for (see the check agent)",
			"watch the shares closely, or use 3.1 to 3.5")
	case f.DataNode.Version != tested:
		return good("Hadoop %s; %s of this line is tested", f.DataNode.Version, tested)
	}
	return good("Hadoop %s", f.DataNode.Version)
}

func checkClock(f *Facts) []Result {
	var results []Result
	if s := f.Status; s != nil && (s.MonotonicNS < f.Before || s.MonotonicNS > f.After) {
		results = bad(Warn, "the daemon's monotonic clock is not this machine's",
			"the daemon is on another machine or in its own time namespace: these results may not apply to its machine", "run the doctor on the daemon's machine")
	}
	switch {
	case f.ClockErr != nil:
		return append(results, bad(Warn, f.ClockErr.Error(), "it is unknown whether the clock is synchronised", "run chronyc tracking or timedatectl")...)
	case !f.Synchronised:
		return append(results, bad(Warn, "the system clock is not synchronised",
			"scheduling is not affected, because it uses the monotonic clock; but logs and figures of several nodes cannot be compared", "run chrony or another NTP client")...)
	}
	return append(results, good("synchronised")...)
}
