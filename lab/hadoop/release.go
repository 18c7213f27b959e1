package hadoop

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultVersion is the default Hadoop release.
const DefaultVersion = "3.4.2"

// Versions are the releases that this package fetches and runs, oldest first. They are the last
// releases of the lines that are in use on clusters, and the default.
var Versions = []string{"3.1.4", "3.2.4", "3.3.6", "3.4.2", "3.4.3", "3.5.0"}

// CheckVersion rejects a release that is not among Versions.
func CheckVersion(version string) error {
	if !slices.Contains(Versions, version) {
		return fmt.Errorf("hadoop: version %q is not supported: use one of %s", version, strings.Join(Versions, ", "))
	}
	return nil
}

// examplesVersion returns the release whose example jobs run on a version. The examples of 3.2.4, 3.4.3 and 3.5.0 were
// never published. Those of other releases run on them unchanged.
func examplesVersion(version string) string {
	switch version {
	case "3.2.4":
		return "3.1.4"
	case "3.4.3", "3.5.0":
		return "3.4.2"
	}
	return version
}

// javaOf returns the oldest and the newest Java for a version. The oldest is the one for which its classes are
// compiled. All versions need the security manager, which Java 24 removed. Those before 3.3 know only Java 8.
func javaOf(version string) (oldest, newest int) {
	switch {
	case version == "3.5.0":
		return 17, 23
	case old(version):
		return 8, 8
	default:
		return 8, 23
	}
}

// RunsOn reports whether a version runs on a Java of the given major version.
func RunsOn(version string, java int) bool {
	oldest, newest := javaOf(version)
	return oldest <= java && java <= newest
}

// old reports whether a version is from before 3.3.
func old(version string) bool { return version < "3.3" }

// leftOut returns the artifacts that other dependencies add although the version does not use them. Hadoop 3.3 uses
// reload4j instead.
func leftOut(version string) string {
	if old(version) {
		return ""
	}
	return "log4j,slf4j-log4j12"
}
