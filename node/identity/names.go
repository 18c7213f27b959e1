package identity

import (
	"strings"

	"penstock/node/monitor/owner"
	"penstock/wire/orchestrator"
)

// Names that YARN, Spark and the agents use. All come from other processes' memory or
// directories, so each is accepted whole or not at all.

type class uint8

const (
	classApplication class = iota // the name of one application
	classGroup                    // clients, unattributed: flows of many applications
	classService                  // work of servers for the cluster
	classOther
)

const clients = "clients"

func classOf(flow string) class {
	switch flow {
	case clients, Unattributed:
		return classGroup
	case "replication", "balancer", "scanner", "reconstruction":
		return classService
	}
	if isApplication(flow) {
		return classApplication
	}
	return classOther
}

// OfManyUsers reports whether a flow covers the operations of several users: `clients` and
// `unattributed`.
func OfManyUsers(flow string) bool { return classOf(flow) == classGroup }

func isApplication(s string) bool {
	return isYARNApplication(s) || isSparkApplication(s) || orchestrator.IsApplication(s)
}

// stampDigits is the number of digits in the time stamp of a YARN application's id.
const stampDigits = 13

// isYARNApplication accepts application_<13 digits>_<4 to 10 digits>.
func isYARNApplication(s string) bool {
	rest, ok := strings.CutPrefix(s, "application_")
	stamp, number, cut := strings.Cut(rest, "_")
	return ok && cut && owner.Digits(stamp, stampDigits, stampDigits) && owner.Digits(number, 4, 10)
}

// isSparkApplication accepts Spark standalone's app-<14 digits>-<4 to 10 digits>.
func isSparkApplication(s string) bool {
	rest, ok := strings.CutPrefix(s, "app-")
	stamp, number, cut := strings.Cut(rest, "-")
	return ok && cut && owner.Digits(stamp, 14, 14) && owner.Digits(number, 4, 10)
}

// containerOfCgroup finds the container in the text of /proc/PID/cgroup. parent is the cgroup in
// which the NodeManager creates those of its containers (its cgroups.hierarchy, by default
// hadoop-yarn). The container's cgroup must be a direct child of parent. No part of the path may
// be delegated to a user's own session, since the user could create cgroups of any name there.
func containerOfCgroup(text, parent string) (container string) {
	parent = strings.Trim(parent, "/")
	for line := range strings.Lines(text) {
		// hierarchy:controllers:path, and the path may contain colons.
		_, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		_, path, cut := strings.Cut(rest, ":")
		if !ok || !cut || !strings.HasPrefix(path, "/") {
			continue
		}
		before, after, found := strings.Cut(path+"/", "/"+parent+"/")
		if parent == "" || !found || delegated(before) {
			continue
		}
		id, _, _ := strings.Cut(after, "/")
		if owner.ApplicationOf(id) == "" {
			continue
		}
		if container != "" && container != id {
			return "" // two controllers, two containers: the process was moved
		}
		container = id
	}
	return container
}

func delegated(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "user.slice" || strings.HasPrefix(part, "user@") {
			return true
		}
	}
	return false
}

// place is the position of a path in the directories of a NodeManager or a Spark worker.
type place struct {
	user        string // "" for Spark, which has no directories per user
	application string
	container   string // Spark: the executor's number
	path        string // the container's directory, relative to the local directory
}

// placeOf reads usercache/USER/appcache/APPLICATION/CONTAINER[/...], from path relative
// to a local directory.
func placeOf(rel string) (place, bool) {
	parts := strings.SplitN(rel, "/", 6)
	if len(parts) < 5 || parts[0] != "usercache" || parts[2] != "appcache" || !plain(parts[1]) {
		return place{}, false
	}
	app := owner.ApplicationOf(parts[4])
	if app == "" || app != parts[3] {
		return place{}, false
	}
	return place{parts[1], app, parts[4], strings.Join(parts[:5], "/")}, true
}

// sparkPlaceOf reads APPLICATION/EXECUTOR[/...], from path relative to a Spark worker's
// directory.
func sparkPlaceOf(rel string) (place, bool) {
	parts := strings.SplitN(rel, "/", 3)
	if len(parts) < 2 || !isSparkApplication(parts[0]) || !owner.Digits(parts[1], 1, 10) {
		return place{}, false
	}
	return place{"", parts[0], parts[1], parts[0] + "/" + parts[1]}, true
}

// plain reports whether a part of a path is an ordinary name.
func plain(s string) bool { return s != "" && s != "." && s != ".." && len(s) <= 255 }

// ShortName returns the first part of a principal: HDFS's name of the user.
func ShortName(principal string) string {
	if i := strings.IndexAny(principal, "/@"); i >= 0 {
		return principal[:i]
	}
	return principal
}
