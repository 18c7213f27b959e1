package doctor

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"penstock/core/ladder"
	"penstock/core/reserve"
	"penstock/node/identity"
	"penstock/node/status"
)

// Checks of the daemon, the DataNode, and their connection.

func checkDaemon(f *Facts) []Result {
	if f.Status == nil {
		return bad(Fail, f.StatusErr.Error(),
			"nothing is governed: without a daemon all gates are open",
			"start it: penstock node run --config FILE; if it listens elsewhere, name it with --address")
	}
	found := fmt.Sprintf("penstock %s answers at %s, process %d", f.Status.Build, f.Address, f.Status.PID)
	if f.Status.Build != f.Build {
		return bad(Warn, found, "this is penstock "+f.Build+": the daemon is another version, perhaps one that was replaced on disk and still runs",
			"restart the daemon, or use the doctor that came with it")
	}
	return good("%s", found)
}

func checkHeartbeat(f *Facts) []Result {
	switch {
	case f.Status == nil:
		return nil
	case !f.Status.Heartbeat.Alive:
		return bad(Fail, "no heartbeat: the loops of these devices are stalled: "+strings.Join(f.Status.Heartbeat.Stalled, ", "),
			"agents have opened these devices' gates: their I/O is not governed; other devices are governed as usual",
			"check the kernel's log for the device; if the device is sound, restart the daemon and report this")
	}
	return good("every device's loop runs")
}

func checkKillSwitch(f *Facts) []Result {
	switch {
	case f.Status == nil:
		return nil
	case f.Status.KillSwitch.On:
		return bad(Warn, f.Status.KillSwitch.File+" exists", "the kill switch is on: nothing is governed, regardless of other settings",
			"delete the file to switch Penstock on again")
	}
	return good("off")
}

func checkMode(f *Facts) []Result {
	switch {
	case f.Status == nil || f.Status.KillSwitch.On:
		return nil
	case f.Status.Mode == "off":
		return bad(Warn, "off", "nothing is governed, and no I/O is counted", `set "mode" to observe or enforce in the weights file`)
	case f.Status.Mode == "observe":
		return good("observe: counts all I/O and delays none")
	}
	return good("%s", f.Status.Mode)
}

func checkWeights(f *Facts) []Result {
	if f.Status == nil {
		return nil
	}
	w := f.Status.Weights
	switch {
	case w.Error != "":
		return bad(Warn, w.Error, "the weights file is refused; its last good version is in force", "correct it; it is read again at once")
	case w.File == "":
		return bad(Warn, "no weights file", "every application has weight 1, and weights cannot be changed while the daemon is running",
			`name one as "weights" in the daemon's settings`)
	}
	return good("%s: %d rules, default %d", w.File, w.Rules, w.Default)
}

func checkDataNode(f *Facts) []Result {
	if f.DataNode.Err != nil {
		return bad(Fail, f.DataNode.Err.Error(), "it is unknown whether an agent is in the DataNode",
			"name the DataNode's web address with --datanode (http://HOST:PORT, dfs.datanode.http.address, or https://HOST:PORT, dfs.datanode.https.address)"+secured)
	}
	return good("%s answers, process %d", f.DataNode.URL, f.DataNode.PID)
}

func checkAgent(f *Facts) []Result {
	if f.DataNode.Err != nil {
		return nil
	}
	a := f.DataNode.Agent
	switch {
	case a == nil:
		return bad(Fail, "the DataNode has no agent (no MBean penstock:type=Agent)", "none of its I/O is governed",
			"add -javaagent:/opt/penstock/penstock-agent.jar=socket=... to HDFS_DATANODE_OPTS and restart the DataNode")
	case a.State != "woven":
		found := "the agent does nothing, its state is " + a.State
		if len(a.Missing) > 0 {
			found += ": " + strings.Join(a.Missing, ", ")
		}
		return bad(Fail, found, "the DataNode runs as it would without the agent; none of its I/O is governed",
			"use a supported Hadoop and a JVM of Java 16 or later (from 8 on with \"loopback\" in the daemon's settings); the agent's messages are in the DataNode's .out file")
	case !a.Connected:
		return bad(Fail, "the agent is woven and not connected to a daemon", "its gates are open: none of its I/O is governed",
			"see the checks daemon, socket and directories; the daemon's log shows which users it refuses")
	case f.Status != nil && f.DataNode.PID != 0 && !f.connected():
		return bad(Fail, fmt.Sprintf("the agent of process %d is connected, but not to this daemon", f.DataNode.PID),
			"another daemon governs this DataNode", "compare socket= of the agent with \"socket\" of the daemon's settings; stop the surplus daemon")
	case len(a.LeftOut) > 0:
		return bad(Fail, a.leftOut(), "this part of the DataNode's I/O is not governed, all other parts are",
			"use a supported Hadoop, or accept it with --ignore agent")
	case a.GateBackstops+a.FailedOpen+a.Suppressed > 0:
		return bad(Warn, fmt.Sprintf("woven and connected; %d waits given up, %d streams ungoverned, %d exceptions suppressed",
			a.GateBackstops, a.FailedOpen, a.Suppressed),
			"some streams since the DataNode's start were not governed", "find the reason in the daemon's log of that time; if the numbers grow, report them")
	}
	return good("woven into %d methods and connected, mode %s", len(a.WovenMethods), a.Mode)
}

// connected reports whether the DataNode's agent is connected to this daemon.
func (f *Facts) connected() bool { return f.connectedPID(f.DataNode.PID) }

func (f *Facts) connectedPID(pid int) bool {
	return slices.ContainsFunc(f.Status.Agents, func(a status.Agent) bool { return int(a.PID) == pid })
}

func checkSocket(f *Facts) []Result {
	switch {
	case f.Status == nil:
		return nil
	case f.connected():
		return good("%s, and the DataNode is connected to it", f.Status.Socket)
	case f.SocketErr != nil:
		return bad(Fail, f.SocketErr.Error(), "agents cannot connect", "somebody removed the socket, or this is another machine: restart the daemon")
	case f.Node == nil:
		return good("%s is there", f.Status.Socket)
	}
	who := fmt.Sprintf("the DataNode's user (%d)", f.Node.UID)
	if !slices.Contains(f.Status.Users, f.Node.UID) {
		return bad(Fail, who+" is not one of the users that may connect", "the daemon refuses its agent",
			"add the user to \"users\" in the daemon's settings and restart the daemon")
	}
	for i, p := range f.Socket {
		last := i == len(f.Socket)-1
		if last && f.Node.may(p, 2) || !last && f.Node.may(p, 1) {
			continue
		}
		if last {
			return bad(Fail, fmt.Sprintf("%s may not write %s (%v, owner %d, group %d)", who, p.Name, p.Mode, p.UID, p.GID),
				"its agent cannot connect", "set socket_group to a group of the DataNode's user in the daemon's settings, and socket_mode to 0660")
		}
		return bad(Fail, fmt.Sprintf("%s may not search %s (%v, owner %d, group %d)", who, p.Name, p.Mode, p.UID, p.GID),
			"its agent cannot reach the socket", "change the folder's group to a group of the DataNode's user, mode 0750, as install.md says")
	}
	return good("%s, and %s may connect", f.Status.Socket, who)
}

// Numbers of capabilities, as in the kernel.
const (
	capDacOverride   = 1 << 1
	capDacReadSearch = 1 << 2
	capFowner        = 1 << 3
	capSysPtrace     = 1 << 19
)

// may reports whether the file's mode gives the process the right (4: read, 2: write, 1: search).
func (p *Process) may(file Path, right uint32) bool {
	if p.Capabilities&capDacOverride != 0 {
		return true
	}
	mode := uint32(file.Mode.Perm())
	switch {
	case p.UID == file.UID:
		mode >>= 6
	case p.GID == file.GID || slices.Contains(p.Groups, file.GID):
		mode >>= 3
	}
	return mode&right == right
}

func checkDirectories(f *Facts) []Result {
	if f.Status == nil || len(f.Directories) == 0 {
		return nil
	}
	governed := map[string]string{}
	for _, d := range f.Status.Devices {
		for _, dir := range d.Directories {
			governed[dir] = d.Name
		}
	}
	refused := map[string]status.Ungoverned{}
	for _, a := range f.Status.Agents {
		for _, u := range a.Ungoverned {
			refused[path.Clean(u.Directory)] = u
		}
	}
	var found []string
	var missing []Result
	for _, d := range f.Directories {
		u, why := refused[d.Name]
		device, ok := governed[d.Name]
		switch {
		case why:
			missing = append(missing, notGoverned(u)...)
		case ok:
			found = append(found, d.Name+" on "+device)
		default:
			missing = append(missing, bad(Fail, "not governed: "+d.Name+": no agent has named it", bypasses,
				"if `hdfs dfsadmin -reconfig` has added it, look for \"volumes that are added or removed\" in the check agent: a DataNode without this feature needs a restart. "+
					"Otherwise the DataNode runs with another dfs.datanode.data.dir: restart it")...)
		}
	}
	switch {
	case len(missing) > 0 && len(f.Status.Agents) == 0:
		return nil // the check agent reports that there is no agent
	case len(missing) > 0:
		return missing
	}
	return good("%s", strings.Join(found, ", "))
}

const bypasses = "I/O in this directory bypasses Penstock"

func notGoverned(u status.Ungoverned) []Result {
	meaning, remedy := bypasses, "correct what the reason says; the daemon looks again at least once a minute"
	switch u.Cause {
	case status.NotListed:
		remedy = "list it in \"data_dirs\" of the daemon's settings, written as in dfs.datanode.data.dir, and restart the daemon. The DataNode needs no restart: its agent connects again"
	case status.Hangs:
		meaning += "; other directories are governed as usual"
		remedy = "look for the disk in the kernel's log. When it answers again, the directory is governed without a restart"
	case status.Absent:
		remedy = "mount its disk, or remove the volume with `hdfs dfsadmin -reconfig`. When the directory is there, it is governed without a restart"
	}
	return bad(Fail, "not governed: "+u.Reason, meaning, remedy)
}

func checkRights(f *Facts) []Result {
	if f.Status == nil {
		return nil
	}
	if f.Daemon == nil {
		return bad(Warn, f.DaemonErr.Error(), "the daemon's rights are unknown", "run the doctor on the node itself, as root or the daemon's user")
	}
	caps := f.Daemon.Capabilities
	var owners []string
	for _, d := range f.Directories {
		if d.Err == nil && d.Owner != f.Daemon.UID {
			owners = append(owners, fmt.Sprintf("%s (%d)", d.Name, d.Owner))
		}
	}
	switch {
	case caps&capDacOverride != 0, caps&capDacReadSearch != 0 && caps&capFowner != 0:
	case len(owners) == 0:
	default:
		return bad(Fail, fmt.Sprintf("the daemon runs as user %d without CAP_DAC_OVERRIDE; these directories belong to others: %s", f.Daemon.UID, strings.Join(owners, ", ")),
			"it may not open block files there, or the kernel reports every page as in memory to it, so nothing would be staged",
			"run it as the DataNode's user or give it CAP_DAC_OVERRIDE, or CAP_DAC_READ_SEARCH and CAP_FOWNER")
	}
	if n := f.Status.SocketCounts.OpenErrors; n > 0 {
		return bad(Warn, fmt.Sprintf("sufficient, but %d streams were not governed because their files could not be opened", n),
			"a few may be blocks that were deleted meanwhile; many point to a folder that the daemon may not enter",
			"watch penstock_agent_open_errors_total; the daemon's log at level debug names the files")
	}
	return good("the daemon (user %d) may open the DataNode's files and query their pages", f.Daemon.UID)
}

// checkIdentity checks whether the daemon may inspect processes, which it needs to verify names.
// Without this right every verdict is "unknown", and there is no other sign of the problem.
func checkIdentity(f *Facts) []Result {
	switch {
	case f.Status == nil:
		return nil
	case f.Status.Identity.Mode == "trust":
		return good("trust: names are accepted without verification")
	case f.Daemon == nil:
		return nil // the check rights reports why
	}
	missing := f.missingRights()
	mode := f.Status.Identity.Mode
	if len(missing) == 0 {
		return good("%s: the daemon (user %d) may inspect other users' processes", mode, f.Daemon.UID)
	}
	meaning := "it cannot find out which of another user's processes owns a connection, so it accepts any name that a client claims"
	if mode == "strict" {
		meaning = "it cannot find out which of another user's processes owns a connection, so other users' I/O is unattributed"
	}
	return bad(Warn, fmt.Sprintf("%s, but the daemon (user %d) lacks %s", mode, f.Daemon.UID, strings.Join(missing, " and ")), meaning,
		"give it both as described in install.md, or run it as root; if this is intended, set mode: trust below identity in its settings")
}

func checkShortCircuit(f *Facts) []Result {
	switch {
	case f.DataNode.Err != nil:
		return nil
	case f.DataNode.ConfErr != nil:
		return bad(Warn, f.DataNode.ConfErr.Error(), "it is unknown whether clients bypass the DataNode",
			"check dfs.client.read.shortcircuit and dfs.domain.socket.path in hdfs-site.xml by hand")
	case f.DataNode.Conf["dfs.client.read.shortcircuit"] == "true" && f.DataNode.Conf["dfs.domain.socket.path"] != "":
		if held := f.heldServices(); len(held) > 0 {
			return good("short-circuit reads are on; those of %s are held by kernel control, all others are foreign I/O", strings.Join(held, ", "))
		}
		return bad(Warn, "short-circuit reads are on ("+f.DataNode.Conf["dfs.domain.socket.path"]+")",
			"clients on this node read block files themselves: their reads have no share and count as foreign I/O",
			"set dfs.client.read.shortcircuit to false for DataNodes and clients; or hold the services that use it (docs/operate/control.md, short-circuit reads)")
	}
	return good("off")
}

// heldServices returns the flows of named services whose own file I/O the gate holds on all devices. Other holds of such flows
// are of connections.
func (f *Facts) heldServices() []string {
	if f.Status == nil {
		return nil
	}
	held := map[string]bool{}
	for _, h := range f.Status.Control.Holds {
		if strings.HasPrefix(h.Flow, identity.NamedFlow) && !slices.Contains([]string{string(ladder.Pacing), string(ladder.Shaper)}, h.Mechanism) {
			before, there := held[h.Flow]
			held[h.Flow] = h.Held && (before || !there)
		}
	}
	maps.DeleteFunc(held, func(_ string, all bool) bool { return !all })
	return slices.Sorted(maps.Keys(held))
}

// checkForeign reports how foreign I/O is attributed. A coarse attribution is not a fault, because
// nothing depends on it.
func checkForeign(f *Facts) []Result {
	switch {
	case f.Status == nil:
		return nil
	case f.Status.ForeignWatch.Error != "":
		return good("attributed by device only, not by process and cgroup, and latencies by owner are not known: %s", f.Status.ForeignWatch.Error)
	case !f.Status.ForeignWatch.On:
		return good("attributed by device only")
	}
	return good("attributed by process and cgroup; latencies by owner are known")
}

// checkWaits reports whether the waits of containers are known. Nothing is governed by them, so it
// never warns.
func checkWaits(f *Facts) []Result {
	switch {
	case f.Status == nil:
		return nil
	case f.Status.Processes.Error != "":
		return good("incomplete: %s", f.Status.Processes.Error)
	case !f.Status.Processes.BlockDelayCounted:
		return good("%s", f.Status.Processes.Note)
	}
	return good("waits of containers for disks and CPUs are known")
}

// checkControl reports by which mechanisms processes and connections without an agent can be held. It
// warns when the policy asks for a hold that is not in force.
func checkControl(f *Facts) []Result {
	if f.Status == nil {
		return nil
	}
	c := f.Status.Control
	if c.Mode == "off" || c.Mode == "" {
		return good("off: only what has an agent is governed")
	}
	var all []Result
	var available, missing []string
	for _, m := range c.Mechanisms {
		if m.Available {
			available = append(available, m.Name)
		} else {
			missing = append(missing, m.Name+": "+m.Why)
		}
	}
	if c.Error != "" {
		all = append(all, bad(Warn, "kernel control: "+c.Error, "a hold may not be in force as the policy asks", "read the daemon's log")...)
	}
	gaps := ""
	for _, h := range c.Holds {
		if h.Gap != "" && !strings.Contains(gaps, h.Gap) {
			gaps += "; by " + h.Mechanism + ", " + h.Gap
		}
		switch {
		case h.Error != "":
			all = append(all, bad(Warn, fmt.Sprintf("%s on %s is not held: %s", h.Flow, h.Where, h.Error), "its I/O passes without a limit and without a share", "`penstock node run --check` shows the mechanisms")...)
		case h.Mechanism == "":
			all = append(all, bad(Warn, fmt.Sprintf("nothing can hold %s on %s", h.Flow, h.Where), "its I/O passes without a limit and without a share", "`penstock node run --check` says why for each mechanism")...)
		}
	}
	joined := ""
	if j := c.Joining; j != nil {
		joined = fmt.Sprintf("; %d of %d connections between containers are joined", j.Joined, j.Connections)
		if j.Limited != "" {
			all = append(all, bad(Warn, "no connection between containers is joined: "+j.Limited, "the limit would not hold joined bytes, so containers use the bridge as without `control.joining`",
				"remove the limit, or `control.joining` from the settings")...)
		}
		if j.Error != "" {
			all = append(all, bad(Warn, "joining connections between containers: "+j.Error, "some connections may use the bridge as without `control.joining`", "read the daemon's log")...)
		}
	}
	if len(all) > 0 {
		return all
	}
	return good("%s: %d holds by the policy; available: %s; missing: %s%s%s", c.Mode, len(c.Holds)+c.LeftOff, orNone(available, ", "), orNone(missing, "; "), gaps, joined)
}

// checkPromises warns of a guaranteed rate that was broken for more than this part of the time in which its flow was
// backlogged.
const brokenPart = 0.01

// checkPromises warns of guaranteed rates that a device cannot keep, or has not kept.
func checkPromises(f *Facts) []Result {
	if f.Status == nil {
		return nil
	}
	var all []Result
	promises := 0
	for _, d := range f.Status.Devices {
		for _, flow := range d.Flows {
			r := flow.Reserve
			if r.Rate == (reserve.Rate{}) {
				continue
			}
			promises++
			switch r.State {
			case reserve.Queued.String():
				all = append(all, bad(Warn, fmt.Sprintf("%s: the guaranteed rate of %s (%s) is queued: there is room for %.0f %% of it", d.Name, flow.Name, r.Rate, 100*r.Fits),
					"the flow has only its share by weight", "lower this rate or those of other rules, or let fewer applications use this device")...)
			case reserve.Reduced.String():
				all = append(all, bad(Warn, fmt.Sprintf("%s: the guaranteed rate of %s (%s) is reduced to %.0f %%, as the device is too slow for all rates", d.Name, flow.Name, r.Rate, 100*r.Granted),
					"the flow gets less than its guaranteed rate", "look at `slow_factor` of the device in `penstock status --json`; rules that come first in the policy keep their rates")...)
			}
			if total := r.KeptNS + r.BrokenNS; total > 0 && float64(r.BrokenNS) > brokenPart*float64(total) {
				all = append(all, bad(Warn, fmt.Sprintf("%s: the guaranteed rate of %s (%s) was kept for %.1f %% of the time in which it was backlogged", d.Name, flow.Name, r.Rate, 100*float64(r.KeptNS)/float64(total)),
					"the flow got less than its guaranteed rate", "look at `promised`, `slow_factor` and the foreign I/O of the device in `penstock status --json`")...)
			}
		}
	}
	if len(all) > 0 {
		return all
	}
	if promises == 0 {
		return good("no flow has a guaranteed rate")
	}
	return good("guaranteed rates: %d, none broken for more than 1 %% of the time", promises)
}

func orNone(list []string, separator string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, separator)
}
