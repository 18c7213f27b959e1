// Package orchestrator reads what Kubernetes and Mesos report about containers: which application each
// belongs to, and how much of a bandwidth resource it has requested.
//
// Problem: the kernel's cgroups name the pod's UID or the container's id, and a policy refers to
// applications. Only the cluster manager knows the rest. Choice: small structs and the standard library's
// decoder. The client libraries of Kubernetes would be larger than all of Penstock, and the form of these
// answers has been stable for years: v1.PodList of Kubernetes, the JSON of Mesos' agents and masters.
//
// The answers come from servers that the operator has named. Their text is chosen by those who may create
// pods and frameworks, so each name is checked, and everything has a bound.
//
// No Kubernetes and no Mesos could be run for the tests. They use answers in the documented form.
package orchestrator

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"
)

// Limits of what is read.
const (
	MaxName      = 128       // bytes of an application's name, as between agents and the daemon
	maxText      = 1024      // bytes of a name for people
	maxLabels    = 64        // labels of a pod that are kept
	maxObject    = 4 << 20   // bytes of one pod; etcd's own bound for an object is 1.5 MiB
	MaxBandwidth = 1_000_000 // MB/s
)

// Prefixes and forms of applications' names.
const (
	// WorkloadPrefix begins the name of an application of Kubernetes that is not Spark's:
	// kubernetes:NAMESPACE/NAME.
	WorkloadPrefix = "kubernetes:"
	sparkPrefix    = "spark-"
	oldPrefix      = "spark-application-"
)

// IsSparkOnKubernetes reports whether a name has the form of the ids that Spark generates on Kubernetes:
// spark- and 32 hexadecimal digits, or in old versions spark-application- and the time in ms.
func IsSparkOnKubernetes(s string) bool {
	if stamp, old := strings.CutPrefix(s, oldPrefix); old {
		return len(stamp) == 13 && strings.Trim(stamp, "0123456789") == ""
	}
	id, ok := strings.CutPrefix(s, sparkPrefix)
	return ok && isHex(id, 32)
}

// IsWorkload reports whether a name has the form kubernetes:NAMESPACE/NAME.
func IsWorkload(s string) bool {
	rest, ok := strings.CutPrefix(s, WorkloadPrefix)
	namespace, name, cut := strings.Cut(rest, "/")
	name, digest, shortened := strings.Cut(name, "~")
	return ok && cut && len(s) <= MaxName && isLabel(namespace) && isName(name) && (!shortened || isHex(digest, digestDigits))
}

// IsFramework reports whether a name has the form of a framework's id: the master's UUID, and a number of 4 to 10
// digits. A Spark driver that Spark's dispatcher for Mesos starts has the dispatcher's id with the driver's own, such as
// -driver-20260102030405-0001, and after a restart -retry-1 (MesosClusterScheduler.getDriverFrameworkID).
func IsFramework(s string) bool {
	const uuid, date = 36, 14
	if len(s) <= uuid || !isUUID(s[:uuid]) || s[uuid] != '-' {
		return false
	}
	number, driver, started := strings.Cut(s[uuid+1:], "-driver-")
	if !isNumber(number, 4) || !started {
		return !started && isNumber(number, 4)
	}
	stamp, serial, _ := strings.Cut(driver, "-")
	serial, retry, again := strings.Cut(serial, "-retry-")
	return len(stamp) == date && strings.Trim(stamp, "0123456789") == "" && isNumber(serial, 4) && (!again || isNumber(retry, 1))
}

// isNumber reports whether s consists of least to 10 decimal digits.
func isNumber(s string, least int) bool {
	return len(s) >= least && len(s) <= 10 && strings.Trim(s, "0123456789") == ""
}

// IsApplication reports whether a name has one of the forms above.
func IsApplication(s string) bool { return IsSparkOnKubernetes(s) || IsWorkload(s) || IsFramework(s) }

// digestDigits is the number of digits by which shortened names differ.
const digestDigits = 16

// workload returns the application's name of a workload. If the whole name is too long, its end is replaced
// by a digest.
func workload(namespace, name string) string {
	s := WorkloadPrefix + namespace + "/" + name
	if len(s) <= MaxName {
		return s
	}
	digest := sha256.Sum256([]byte(s))
	return strings.TrimRight(s[:MaxName-1-digestDigits], ".-") + "~" + hex.EncodeToString(digest[:])[:digestDigits]
}

// isName reports whether s can be the name of an object of Kubernetes: letters, digits, '-' and '.'. The rules
// for single kinds are stricter.
func isName(s string) bool {
	return s != "" && len(s) <= 253 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" && s[0] != '.' && s[0] != '-'
}

// isLabel reports whether s can be the name of a namespace.
func isLabel(s string) bool { return len(s) <= 63 && isName(s) && !strings.Contains(s, ".") }

func isHex(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "0123456789abcdef") == ""
}

func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, length := range []int{8, 4, 4, 4, 12} {
		part, rest, more := strings.Cut(s, "-")
		if !isHex(part, length) || more != (i < 4) {
			return false
		}
		s = rest
	}
	return true
}

// bandwidth returns an amount in whole MB/s: at least 1 if there is any, at most MaxBandwidth.
func bandwidth(amount float64) int64 {
	if !(amount > 0) {
		return 0
	}
	return int64(min(max(math.Round(amount), 1), MaxBandwidth))
}
