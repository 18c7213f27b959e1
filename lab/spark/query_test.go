package spark

import (
	"path/filepath"
	"testing"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/process"
)

// Find returns a query's line from the driver's other output, and only when the line is complete.
func TestQuery(t *testing.T) {
	dir := t.TempDir()
	book, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	const said = `INFO started
{"query": "q9", "began": 1700000000.25, "seconds": 12.5, "rows": 3, "sha256": "ab"}
{"query": "q21"`
	p, err := process.Start(process.Options{Book: book, Name: "driver", Log: filepath.Join(dir, "log")}, "sh", "-c", "printf '%s' \"$0\"; sleep 0.1", said)
	if err != nil {
		t.Fatal(err)
	}
	a := &App{p: p}
	q, err := a.Query(t.Context(), "q9")
	if err != nil || !q.Began.Equal(time.UnixMilli(1700000000250)) || q.Elapsed != 12500*time.Millisecond || q.Rows != 3 || q.SHA256 != "ab" {
		t.Errorf("%+v, %v", q, err)
	}
	if q, err := a.Query(t.Context(), "q21"); err == nil {
		t.Errorf("half a line was taken: %+v", q)
	}
}
