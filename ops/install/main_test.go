package install

import (
	"os"
	"testing"
)

// TestMain puts the tests' folders in memory if the machine has a file system there: every step is
// synced, and the files after a kill do not depend on the disk.
func TestMain(m *testing.M) {
	if at, err := os.Stat("/dev/shm"); err == nil && at.IsDir() && os.Getenv("TMPDIR") == "" {
		if err := os.Setenv("TMPDIR", "/dev/shm"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
