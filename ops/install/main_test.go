package install

import (
	"os"
	"testing"
)

// TestMain has the tests' folders in memory, where the machine has such: every step is synced, and
// what a kill leaves does not depend on the disk.
func TestMain(m *testing.M) {
	if at, err := os.Stat("/dev/shm"); err == nil && at.IsDir() && os.Getenv("TMPDIR") == "" {
		if err := os.Setenv("TMPDIR", "/dev/shm"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
