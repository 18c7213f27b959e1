package spark

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A query's line is found among what else the driver says, and only whole.
func TestQuery(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	ended := make(chan struct{})
	a := &App{p: &process{log: log, exited: ended, cmd: exec.Command("driver")}}
	write := func(text string) {
		if err := os.WriteFile(log, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("INFO started\n{\"query\": \"q9\", \"began\": 1700000000.25, \"seconds\": 12.5, \"rows\": 3, \"sha256\": \"ab\"}\n{\"query\": \"q21\"")
	q, err := a.Query(t.Context(), "q9")
	if err != nil || !q.Began.Equal(time.UnixMilli(1700000000250)) || q.Elapsed != 12500*time.Millisecond || q.Rows != 3 || q.SHA256 != "ab" {
		t.Errorf("%+v, %v", q, err)
	}
	close(ended)
	if q, err := a.Query(t.Context(), "q21"); err == nil {
		t.Errorf("half a line was taken: %+v", q)
	}
}
