package gated

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"penstock/node/blockfile"
	"penstock/node/device"
)

// An operation that bypasses the page cache is a stream of its own. Its file is a stand-in: the
// arbiter sees bytes that are not resident or not saved; to stage or drain them means to let the
// thread's own system call run, and to wait until it has returned. So the depth counts the request,
// and its latency is measured, as for the daemon's own requests. A long operation has several
// quanta: the first one lets it pass and waits, the others find it done.

const (
	pollFirst = 200 * time.Microsecond // between two looks at the thread; doubles
	pollLast  = 4 * time.Millisecond
	// returnsWithin is the longest wait for a system call. A disk that takes longer hangs; the device's
	// loop notices that by itself.
	returnsWithin = 30 * time.Second
)

// direct schedules an operation that bypasses the page cache.
func (s *Scheduler) direct(loop *device.Loop, op Operation) {
	d := &directFile{op: op, options: &s.options}
	d.part.wait(ungoverned, d.pass)
	d.loop = loop
	d.ready = make(chan struct{})
	d.part.at = loop.Open(device.OpenRequest{Marker: &d.part, Flow: op.Flow, User: op.User,
		Kind: device.Persistent, Write: op.Write, Block: d, From: op.Offset, To: op.Offset + op.Length})
	close(d.ready)
	if op.Write {
		loop.Progress(d.part.at, op.Offset+op.Length)
		loop.Close(d.part.at, op.Offset+op.Length)
	}
}

// ungoverned is the mark of a stream that is not governed. Below it, a mark lets no direct operation pass.
const ungoverned = device.Open

// directFile is the file of a direct operation. It implements device.File.
type directFile struct {
	op      Operation
	options *Options
	loop    *device.Loop
	part    part
	ready   chan struct{} // part.at is set

	passed  sync.Once
	mu      sync.Mutex
	done    bool
	waiting sync.Mutex // held while one request waits for the system call
}

// pass lets the operation pass, once.
func (d *directFile) pass() { d.passed.Do(d.op.Allow) }

// Query implements device.File: until the operation is done, nothing is resident or saved.
func (d *directFile) Query(_, length int64) (blockfile.Pages, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		return blockfile.Pages{Resident: length}, nil
	}
	return blockfile.Pages{Unsaved: length}, nil
}

// Stage implements device.File.
func (d *directFile) Stage(off, length int64) error {
	d.run()
	if off+length >= d.op.Offset+d.op.Length {
		<-d.ready
		d.loop.Close(d.part.at, off+length)
	}
	return nil
}

// Drain implements device.File.
func (d *directFile) Drain(int64, int64) error { d.run(); return nil }

// Deleted implements device.File.
func (d *directFile) Deleted() bool { return false }

// Size implements device.File.
func (d *directFile) Size() (int64, error) { return d.op.Offset + d.op.Length, nil }

// Space implements device.File.
func (d *directFile) Space() (int64, error) { return d.Size() }

// Close implements device.File: the stream has ended, so nothing holds the operation.
func (d *directFile) Close() error { d.pass(); return nil }

// run lets the operation pass and waits until it is done.
func (d *directFile) run() {
	d.waiting.Lock()
	defer d.waiting.Unlock()
	d.mu.Lock()
	done := d.done
	d.mu.Unlock()
	if done {
		return
	}
	d.await()
	d.mu.Lock()
	d.done = true
	d.mu.Unlock()
}

func (d *directFile) await() {
	before, err := d.calls()
	d.pass()
	if d.op.Async || err != nil {
		time.Sleep(d.options.Expect(d.op.Write, d.op.Length))
		return
	}
	wait := pollFirst
	for deadline := time.Now().Add(returnsWithin); time.Now().Before(deadline); {
		time.Sleep(wait)
		if now, err := d.calls(); err != nil || now != before {
			return // it returned, or the thread is gone
		}
		wait = min(2*wait, pollLast)
	}
}

// calls returns how many reads, or writes, of the thread have returned.
func (d *directFile) calls() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("%s/%d/task/%d/io", d.options.Procfs, d.op.PID, d.op.TID))
	if err != nil {
		return 0, err
	}
	return parseCalls(b, d.op.Write)
}

// parseCalls reads the number of system calls from a thread's io file in procfs. (The library reads
// only that of processes.)
func parseCalls(b []byte, write bool) (int64, error) {
	name := []byte("syscr: ")
	if write {
		name = []byte("syscw: ")
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if value, ok := bytes.CutPrefix(lines.Bytes(), name); ok {
			return strconv.ParseInt(string(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("the kernel does not count system calls (%q)", b)
}
