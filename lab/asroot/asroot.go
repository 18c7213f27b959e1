// Package asroot runs the tests of packages that change the system, which only root may do.
package asroot

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// Main runs the tests of a package and ends the process. For other users than root it runs only those
// whose names match the regular expression, and says so.
func Main(m *testing.M, withoutRoot string) {
	flag.Parse()
	if os.Geteuid() != 0 {
		fmt.Printf("not root: only the tests that match %q run\n", withoutRoot)
		if err := flag.Set("test.run", withoutRoot); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
