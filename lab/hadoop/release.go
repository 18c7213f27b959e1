package hadoop

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultVersion is the default Hadoop release.
const DefaultVersion = "3.4.2"

// Versions are the releases that this package fetches and runs, oldest first. They are the last
// releases of the lines that are in use on clusters.
var Versions = []string{"3.3.6", "3.4.2", "3.5.0"}

// CheckVersion rejects a release that is not among Versions.
func CheckVersion(version string) error {
	if !slices.Contains(Versions, version) {
		return fmt.Errorf("hadoop: version %q is not supported: use one of %s", version, strings.Join(Versions, ", "))
	}
	return nil
}

// examplesVersion returns the release whose example jobs run on a version. The examples of 3.5.0
// were never published, and the examples of 3.4.2 run on 3.5.0 unchanged.
func examplesVersion(version string) string {
	if version == "3.5.0" {
		return "3.4.2"
	}
	return version
}

// leastJava returns the oldest Java for a version: the one for which its classes are compiled.
func leastJava(version string) int {
	if version == "3.5.0" {
		return 17
	}
	return 8
}
