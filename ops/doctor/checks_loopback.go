package doctor

import (
	"fmt"
	"io/fs"
	"strings"
)

// checkLoopback reports the port for agents on JVMs without Unix sockets.
func checkLoopback(f *Facts) []Result {
	if f.Status == nil {
		return nil
	}
	l := f.Status.Loopback
	switch {
	case l.Setting == "off" || l.Setting == "":
		return good("off: agents need Java 16 or later")
	case l.Listen == "":
		return bad(Warn, "the daemon does not listen at "+l.Setting, "agents on JVMs before Java 16 cannot connect, and govern nothing",
			"another process uses the port: stop it, or set \"loopback\" to 127.0.0.1:0 in the daemon's settings; the daemon's log has the reason")
	}
	found := fmt.Sprintf("%s, which %s names; %d agents are connected by it", l.Listen, l.File, l.Agents)
	if missing := f.missingRights(); f.Daemon != nil && len(missing) > 0 {
		return bad(Warn, fmt.Sprintf("%s; the daemon (user %d) lacks %s", found, f.Daemon.UID, strings.Join(missing, " and ")),
			"it cannot find out which of another user's processes has a connection, so it refuses other users' agents there",
			"give it both as described in install.md, or run it as root or as the agents' user")
	}
	if why := f.openFolder(); why != "" {
		return bad(Warn, found+"; "+why, "agents refuse the file, because others could have written it, and govern nothing",
			"let only root and the daemon's user write the socket's folder and the folders above it")
	}
	if l.NoProcess > 0 {
		return bad(Warn, fmt.Sprintf("%s; %d connections were refused because their process was not found", found, l.NoProcess),
			"some agents may be ungoverned; or somebody sends false process numbers", "the daemon's log has the users and the reasons")
	}
	return good("%s", found)
}

// openFolder names a folder on the way to the socket that others than root and the owner of the socket's
// folder may change, as agents check it; "" if there is none. The sticky bit protects the folders in
// a folder, but not files that are not there yet.
func (f *Facts) openFolder() string {
	if len(f.Socket) < 2 {
		return ""
	}
	folders := f.Socket[:len(f.Socket)-1]
	own := folders[len(folders)-1]
	for i, p := range folders {
		sticky := i < len(folders)-1 && p.Mode&fs.ModeSticky != 0
		if p.UID != 0 && p.UID != own.UID || p.Mode.Perm()&0o022 != 0 && !sticky {
			return fmt.Sprintf("others may change %s (%v, owner %d)", p.Name, p.Mode, p.UID)
		}
	}
	return ""
}

// missingRights returns the capabilities that the daemon lacks to examine other users' processes.
func (f *Facts) missingRights() (missing []string) {
	if f.Daemon == nil {
		return nil
	}
	caps := f.Daemon.Capabilities
	if caps&capSysPtrace == 0 {
		missing = append(missing, "CAP_SYS_PTRACE")
	}
	if caps&(capDacReadSearch|capDacOverride) == 0 {
		missing = append(missing, "CAP_DAC_READ_SEARCH")
	}
	return missing
}
