package hadoop

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultVersion is the default Hadoop release.
const DefaultVersion = "3.4.2"

// Versions are the releases that this package fetches and runs, the oldest first: the last of each
// line that is in use on clusters.
var Versions = []string{"3.3.6", "3.4.2", "3.5.0"}

// CheckVersion rejects a release that is not among Versions.
func CheckVersion(version string) error {
	if !slices.Contains(Versions, version) {
		return fmt.Errorf("hadoop: no version %q here; there are %s", version, strings.Join(Versions, ", "))
	}
	return nil
}

// examplesVersion is the release whose example jobs run on a version. Those of
// 3.5.0 were never published; 3.4.2's run on it unchanged.
func examplesVersion(version string) string {
	if version == "3.5.0" {
		return "3.4.2"
	}
	return version
}

// leastJava returns the oldest Java for a version. The options that this package uses need Java 9;
// the classes of 3.5 are compiled for 17.
func leastJava(version string) int {
	if version == "3.5.0" {
		return 17
	}
	return 9
}
