package spark

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/process"
)

// Orders are performed in order, each with its own input and output, and the end ends the program.
func TestOrders(t *testing.T) {
	dir := t.TempDir()
	book, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	if _, err := Script(dir, Sort); err != nil {
		t.Fatal(err)
	}
	o := &Orders{dir: filepath.Join(dir, "orders")}
	if err := os.Mkdir(o.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const program = `import sys, orders
orders.serve(sys.argv[1], lambda source, target: open(target, "w").write("from " + source))`
	p, err := process.Start(process.Options{Book: book, Name: "driver", Dir: dir, Log: filepath.Join(dir, "log")}, "python3", "-c", program, o.dir)
	if err != nil {
		t.Fatal(err)
	}
	o.App = &App{p: p}
	if _, err := o.done(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	var last time.Time
	for _, source := range []string{"a", "b"} {
		target := filepath.Join(dir, "made-"+source)
		wait, err := o.Give(source, target)
		if err != nil {
			t.Fatal(err)
		}
		done, err := wait(t.Context())
		if err != nil || done.Began.Before(last) || done.Elapsed < 0 || done.End().After(time.Now()) {
			t.Errorf("%+v, %v; the order before ended at %v", done, err, last)
		}
		if text, err := os.ReadFile(target); err != nil || string(text) != "from "+source {
			t.Errorf("%q, %v", text, err)
		}
		last = done.End()
	}
	if err := o.End(t.Context()); err != nil {
		t.Error(err)
	}
	if wait, err := o.Give("c", "d"); err != nil {
		t.Error(err)
	} else if done, err := wait(t.Context()); err == nil {
		t.Errorf("an ended program has done %+v", done)
	}
}
