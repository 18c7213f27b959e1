package doctor

import (
	"fmt"
	"slices"
	"strings"

	"penstock/node/status"
)

// The checks of the daemon, the DataNode, and what is between them.

func checkDaemon(f *Facts) []Result {
	if f.Status == nil {
		return bad(Fail, f.StatusErr.Error(),
			"nothing is governed; without a daemon every gate is open",
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
		return bad(Fail, "no heartbeat of a device: loops are stalled of "+strings.Join(f.Status.Heartbeat.Stalled, ", "),
			"agents have opened these devices' gates: nothing is governed there, and the others are governed as ever",
			"look at the kernel's log for the device; if it is sound, restart the daemon and report this")
	}
	return good("every device's loop turns")
}

func checkKillSwitch(f *Facts) []Result {
	switch {
	case f.Status == nil:
		return nil
	case f.Status.KillSwitch.On:
		return bad(Warn, f.Status.KillSwitch.File+" is there", "the kill switch is on: nothing is governed, whatever else is set",
			"delete the file to go on")
	}
	return good("off")
}

func checkMode(f *Facts) []Result {
	switch {
	case f.Status == nil || f.Status.KillSwitch.On:
		return nil
	case f.Status.Mode == "off":
		return bad(Warn, "off", "nothing is governed or accounted for", `set "mode" to observe or enforce in the weights file`)
	case f.Status.Mode == "observe":
		return good("observe: accounts for everything and holds nobody back")
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
		return bad(Warn, w.Error, "the weights file is refused; the last good one is in force", "mend it; it is read again at once")
	case w.File == "":
		return bad(Warn, "no weights file", "every application has weight 1, and weights cannot be changed while the daemon runs",
			`name one as "weights" in the daemon's settings`)
	}
	return good("%s: %d rules, default %d", w.File, w.Rules, w.Default)
}

func checkDataNode(f *Facts) []Result {
	if f.DataNode.Err != nil {
		return bad(Fail, f.DataNode.Err.Error(), "it is unknown whether an agent is in the DataNode",
			"name the DataNode's web address with --datanode http://HOST:PORT (dfs.datanode.http.address); TLS and Kerberos are not spoken here")
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
		found := "the agent stays " + a.State
		if len(a.Missing) > 0 {
			found += ": " + strings.Join(a.Missing, ", ")
		}
		return bad(Fail, found, "the DataNode runs as without it; none of its I/O is governed",
			"use a supported Hadoop and a JVM of Java 16 or later; the DataNode's .out file has the agent's own words")
	case !a.Connected:
		return bad(Fail, "the agent is woven and not connected to a daemon", "its gates are open: none of its I/O is governed",
			"see the checks of daemon, socket and directories; the daemon's log says whom it refuses")
	case f.Status != nil && f.DataNode.PID != 0 && !f.connected():
		return bad(Fail, fmt.Sprintf("the agent of process %d is connected, but not to this daemon", f.DataNode.PID),
			"another daemon governs this DataNode", "compare socket= of the agent with \"socket\" of the daemon's settings; stop the daemon that is too many")
	case a.GateBackstops+a.FailedOpen+a.Suppressed > 0:
		return bad(Warn, fmt.Sprintf("woven and connected; %d waits given up, %d streams ungoverned, %d exceptions suppressed",
			a.GateBackstops, a.FailedOpen, a.Suppressed),
			"since the DataNode began, some streams were let through", "the daemon's log at that time says why; if the numbers grow, report them")
	}
	return good("woven into %d methods and connected, mode %s", len(a.WovenMethods), a.Mode)
}

// connected reports whether the DataNode's agent is at this daemon.
func (f *Facts) connected() bool { return f.connectedPID(f.DataNode.PID) }

func (f *Facts) connectedPID(pid int) bool {
	return slices.ContainsFunc(f.Status.Agents, func(a status.Agent) bool { return int(a.PID) == pid })
}

func checkSocket(f *Facts) []Result {
	switch {
	case f.Status == nil:
		return nil
	case f.connected():
		return good("%s, and the DataNode is on it", f.Status.Socket)
	case f.SocketErr != nil:
		return bad(Fail, f.SocketErr.Error(), "agents cannot connect", "somebody removed the socket, or this is another machine: restart the daemon")
	case f.Node == nil:
		return good("%s is there", f.Status.Socket)
	}
	who := fmt.Sprintf("the DataNode's user (%d)", f.Node.UID)
	if !slices.Contains(f.Status.Users, f.Node.UID) {
		return bad(Fail, who+" is not among those who may connect", "the daemon refuses its agent",
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
		return bad(Fail, fmt.Sprintf("%s may not pass %s (%v, owner %d, group %d)", who, p.Name, p.Mode, p.UID, p.GID),
			"its agent cannot reach the socket", "give the folder to a group of the DataNode's user, mode 0750, as install.md says")
	}
	return good("%s, and %s may connect", f.Status.Socket, who)
}

// Capabilities, as numbered in the kernel.
const (
	capDacOverride   = 1 << 1
	capDacReadSearch = 1 << 2
	capFowner        = 1 << 3
	capSysPtrace     = 1 << 19
)

// may reports whether the process has the right (4 read, 2 write, 1 pass) to the
// file by its mode.
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
	var found, missing []string
	for _, d := range f.Directories {
		if device, ok := governed[d.Name]; ok {
			found = append(found, d.Name+" on "+device)
		} else {
			missing = append(missing, d.Name)
		}
	}
	switch {
	case len(missing) > 0 && len(f.Status.Agents) == 0:
		return nil // no agent has told of any: that is said elsewhere
	case len(missing) > 0:
		return bad(Fail, "not governed: "+strings.Join(missing, ", "), "I/O there passes Penstock by",
			"list them in \"data_dirs\" of the daemon's settings, written as in dfs.datanode.data.dir, and see that they exist; its log says why it refuses one")
	}
	return good("%s", strings.Join(found, ", "))
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
		return bad(Fail, fmt.Sprintf("the daemon is user %d without CAP_DAC_OVERRIDE; of others are %s", f.Daemon.UID, strings.Join(owners, ", ")),
			"it may not open block files there, or the kernel tells it of every page that it is in memory: nothing would be staged",
			"run it as the DataNode's user or give it CAP_DAC_OVERRIDE, or CAP_DAC_READ_SEARCH and CAP_FOWNER")
	}
	if n := f.Status.SocketCounts.OpenErrors; n > 0 {
		return bad(Warn, fmt.Sprintf("enough; but %d streams went ungoverned because their files could not be opened", n),
			"a few are blocks deleted meanwhile; many are a folder that the daemon may not enter",
			"watch penstock_agent_open_errors_total; the daemon's log at level debug names the files")
	}
	return good("the daemon (user %d) may open the DataNode's files and ask about their pages", f.Daemon.UID)
}

// checkIdentity says whether the daemon may look at what it holds names against. Without
// that every verdict is unknown, and nothing goes wrong that anybody would see.
func checkIdentity(f *Facts) []Result {
	switch {
	case f.Status == nil:
		return nil
	case f.Status.Identity.Mode == "trust":
		return good("trust: names count, nothing is asked")
	case f.Daemon == nil:
		return nil // the check of rights says why
	}
	var missing []string
	caps := f.Daemon.Capabilities
	if caps&capSysPtrace == 0 {
		missing = append(missing, "CAP_SYS_PTRACE")
	}
	if caps&(capDacReadSearch|capDacOverride) == 0 {
		missing = append(missing, "CAP_DAC_READ_SEARCH")
	}
	mode := f.Status.Identity.Mode
	if len(missing) == 0 {
		return good("%s: the daemon (user %d) may look into other users' processes", mode, f.Daemon.UID)
	}
	meaning := "it cannot tell which of another user's processes has a connection: whatever name a client gives itself counts"
	if mode == "strict" {
		meaning = "it cannot tell which of another user's processes has a connection: what other users do is unattributed"
	}
	return bad(Warn, fmt.Sprintf("%s, but the daemon (user %d) lacks %s", mode, f.Daemon.UID, strings.Join(missing, " and ")), meaning,
		"give it both as install.md says, or run it as root; if it is meant so, set mode: trust below identity in its settings")
}

func checkShortCircuit(f *Facts) []Result {
	switch {
	case f.DataNode.Err != nil:
		return nil
	case f.DataNode.ConfErr != nil:
		return bad(Warn, f.DataNode.ConfErr.Error(), "it is unknown whether clients read past the DataNode",
			"look yourself: dfs.client.read.shortcircuit and dfs.domain.socket.path in hdfs-site.xml")
	case f.DataNode.Conf["dfs.client.read.shortcircuit"] == "true" && f.DataNode.Conf["dfs.domain.socket.path"] != "":
		return bad(Warn, "short-circuit reads are on ("+f.DataNode.Conf["dfs.domain.socket.path"]+")",
			"clients on this node read block files themselves: their reads have no share and count as foreign I/O",
			"set dfs.client.read.shortcircuit to false for DataNodes and clients")
	}
	return good("off")
}

// checkForeign says what is known of foreign I/O. Telling less is no wrong:
// nothing depends on it.
func checkForeign(f *Facts) []Result {
	switch {
	case f.Status == nil:
		return nil
	case f.Status.ForeignWatch.Error != "":
		return good("told by device only, not by process and cgroup: %s", f.Status.ForeignWatch.Error)
	case !f.Status.ForeignWatch.On:
		return good("told by device only")
	}
	return good("told by process and cgroup")
}
