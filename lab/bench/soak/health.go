package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"penstock/lab/hadoop"
	"penstock/lab/proc"
)

// Usage holds the resources of a process at one moment.
type Usage struct {
	Process string  `json:"process"` // daemon, datanode0, datanode1
	PID     int     `json:"pid"`
	AgeS    float64 `json:"age_s"` // since the first look at this process
	RSSKiB  int64   `json:"rss_kib"`
	FDs     int     `json:"fds"`
	Threads int     `json:"threads"`
}

// usage returns the resources of a process. It returns an error if the process has ended.
func usage(process string, pid int) (Usage, error) {
	resident, _, err1 := proc.Memory(pid)
	_, threads, err2 := proc.State(pid)
	descriptors, err3 := proc.Descriptors(pid)
	return Usage{Process: process, PID: pid, RSSKiB: resident >> 10, FDs: len(descriptors), Threads: threads},
		errors.Join(err1, err2, err3)
}

// usages returns the resources of the daemon and the DataNodes; it leaves out processes that are
// not running.
func (c *campaign) usages() (all []Usage) {
	look := func(process string, pid int) {
		u, err := usage(process, pid)
		if pid == 0 || err != nil {
			return
		}
		if _, known := c.seen[pid]; !known {
			c.seen[pid] = time.Now()
		}
		u.AgeS = time.Since(c.seen[pid]).Seconds()
		all = append(all, u)
	}
	if d := c.m.daemon(); d != nil { // the daemon may not have been restarted yet
		look("daemon", d.PID())
	}
	for i := range Nodes {
		look(fmt.Sprintf("datanode%d", i), c.m.Hadoop.DataNodePID(i))
	}
	return all
}

const jstackPatience = 20 * time.Second

// stacks writes the DataNodes' stacks to the log folder. It returns a text with the paths, and with
// "DEADLOCK" for each DataNode that has a deadlock.
func (m *machine) stacks() string {
	var said []string
	for i := range Nodes {
		pid := m.Hadoop.DataNodePID(i)
		if pid == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), jstackPatience)
		text, err := exec.CommandContext(ctx, "jstack", "-l", strconv.Itoa(pid)).CombinedOutput()
		cancel()
		if err != nil {
			said = append(said, fmt.Sprintf("jstack %d: %v: %.300s", pid, err, text))
			continue
		}
		file, found := fmt.Sprintf("%s/dn%d.stack", m.Hadoop.LogDir(), i), "no deadlock"
		if strings.Contains(string(text), "Java-level deadlock") {
			found = "DEADLOCK"
		}
		said = append(said, fmt.Sprintf("DataNode %d, %s: %s", i, found, file))
		if err := os.WriteFile(file, text, 0o644); err != nil {
			said = append(said, err.Error())
		}
	}
	return strings.Join(said, "\n")
}

// checkThreads looks for deadlocks in the DataNodes and checks the daemon's own report on its
// loops.
func (m *machine) checkThreads(ctx context.Context) error {
	if _, err := m.daemon().Get(ctx, "/-/healthy"); err != nil {
		return err
	}
	if said := m.stacks(); strings.Contains(said, "DEADLOCK") || strings.Contains(said, "jstack") {
		return fmt.Errorf("the DataNodes' threads: %s", said)
	}
	return nil
}

// checkFileSystem lets the NameNode check every block (fsck).
func (m *machine) checkFileSystem(ctx context.Context) error {
	page, err := hadoop.Page(ctx, m.Hadoop.NameNodeURL()+"/fsck?ugi=root&path=%2F")
	if err != nil {
		return err
	}
	return checkReport(string(page))
}

// lacking matches fsck's line about a block with too few replicas.
var lacking = regexp.MustCompile(`(?m)^.* found (\d+) live replica\(s\).*$`)

// checkReport reads fsck's report. A block that should have more replicas than there are DataNodes
// (TeraSort requests ten for its partitions) has enough if each DataNode has one.
func checkReport(report string) error {
	if !strings.Contains(report, "is HEALTHY") {
		return fmt.Errorf("the file system is not healthy:\n%.3000s", report)
	}
	for _, name := range []string{"Corrupt blocks", "Missing blocks"} {
		for line := range strings.SplitSeq(report, "\n") {
			rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+":")
			if f := strings.Fields(rest); ok && (len(f) == 0 || f[0] != "0") {
				return fmt.Errorf("the file system is not whole: %s", strings.TrimSpace(line))
			}
		}
	}
	for _, m := range lacking.FindAllStringSubmatch(report, -1) {
		if n, err := strconv.Atoi(m[1]); err != nil || n < Nodes {
			return fmt.Errorf("a block lacks a replica: %s", m[0])
		}
	}
	return nil
}
