// Package mountstest makes disks hang in tests.
package mountstest

import (
	"errors"
	"os"
	"testing"
	"time"

	"penstock/node/mounts"
)

// OtherDisk returns a folder on another file system than t.TempDir, for the length of the test.
func OtherDisk(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "penstock-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Hang makes the disk of a path hang, as calls see it, until answer is called or the test ends.
func Hang(t testing.TB, calls *mounts.Calls, path string) (answer func()) {
	t.Helper()
	hold, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = mounts.Do(calls, 0, path, time.Hour, func() int { <-hold; return 0 }, nil)
	}()
	done := false
	answer = func() {
		if !done {
			done = true
			close(hold)
			<-ended
		}
	}
	t.Cleanup(answer)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := mounts.Do(calls, 0, path, time.Minute, func() int { return 0 }, nil); errors.Is(err, mounts.ErrHangs) {
			return answer
		}
		if time.Now().After(deadline) {
			t.Fatal("the disk does not hang")
		}
	}
}
