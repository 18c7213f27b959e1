// Package asroot runs the tests of packages that change the system. Only root may make such changes.
package asroot

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// Main runs the tests of a package and ends the process. If the user is not root, it prints a note and runs
// only the tests whose names match the regular expression withoutRoot.
func Main(m *testing.M, withoutRoot string) {
	flag.Parse()
	if os.Geteuid() != 0 {
		fmt.Printf("This user is not root, so only the tests that match %q run.\n", withoutRoot)
		if err := flag.Set("test.run", withoutRoot); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
