package gated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/core/depth"
	"penstock/lab/poll"
	"penstock/node/blockfile"
	"penstock/node/device"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// fixture is a loop and a scheduler for the file system of the test's folder.
type fixture struct {
	*testing.T
	dir       string
	scheduler *Scheduler
	loop      *device.Loop
	folder    *blockfile.Dir
	stopLoop  func()
	stopTicks func() // the scheduler still works, without ticks
}

func newFixture(t *testing.T, rules map[string]device.Rule) *fixture {
	t.Helper()
	f := &fixture{T: t, dir: t.TempDir()}
	line := depth.Line{Fixed: time.Millisecond, PerMiB: 10 * time.Millisecond}
	loop, err := device.New(device.Options{
		Name: "test", Mode: device.Enforce, Log: slog.New(slog.DiscardHandler),
		Config: device.Config{Algorithm: "sfqd", FixedDepth: 1, Depth: depth.Config{Read: line, Write: line}},
		Policy: func(flow string) device.Rule {
			if r, ok := rules[flow]; ok {
				return r
			}
			return device.Rule{Weight: 1, Mode: device.Enforce}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.loop = loop
	if f.folder, err = blockfile.OpenDir(f.dir, "/sys"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.folder.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); loop.Run(ctx) }()
	f.stopLoop = func() { cancel(); <-ended }
	f.scheduler = New(Options{
		Target: func(uint64) (Target, bool) { return Target{f.loop, f.folder}, true },
		Expect: func(bool, int64) time.Duration { return time.Millisecond },
	})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { defer close(stopped); f.scheduler.Run(stop) }()
	f.stopTicks = sync.OnceFunc(func() { close(stop); <-stopped })
	t.Cleanup(func() {
		f.stopTicks()
		f.scheduler.Reset()
		f.stopLoop()
	})
	return f
}

// file makes a cold file.
func (f *fixture) file(name string, size int) *os.File {
	f.Helper()
	file, err := os.OpenFile(filepath.Join(f.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { file.Close() })
	if _, err := file.Write(make([]byte, size)); err != nil {
		f.Fatal(err)
	}
	if err := errors.Join(file.Sync(), unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		f.Fatal(err)
	}
	return file
}

// operation returns an operation of this thread on a file.
func (f *fixture) operation(flow string, file *os.File, off, length int64) Operation {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		f.Fatal(err)
	}
	return Operation{Flow: flow, PID: os.Getpid(), TID: unix.Gettid(), Device: st.Dev, Inode: st.Ino, Offset: off, Length: length,
		Open: func() (*os.File, error) { return os.Open(file.Name()) }}
}

// hold announces an operation and waits until it may pass.
func (f *fixture) hold(op Operation) {
	f.Helper()
	passed := make(chan struct{})
	op.Allow = func() { close(passed) } // panics if it is called twice
	f.scheduler.Handle(op)
	select {
	case <-passed:
	case <-time.After(time.Minute):
		f.Fatalf("%+v was not let through", op)
	}
}

func TestReadsPassWhenTheirBytesAreResident(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := newFixture(t, nil)
	const size = 6*mib + 100
	file := f.file("cold", size)
	pages := f.folder.Wrap(file)
	for off := int64(0); off < size; off += 300 * kib {
		f.hold(f.operation("a", file, off, 300*kib))
		length := min(300*kib, size-off)
		if got, err := pages.Query(off, length); err != nil || got.Resident < length {
			t.Fatalf("read at %d: %+v, %v", off, got, err)
		}
	}
	f.hold(f.operation("a", file, size, 4*kib))  // behind the end
	f.hold(f.operation("a", file, 5*mib, 4*kib)) // backwards
	if s := f.scheduler.Stats(); s.Ungoverned != 0 || s.Streams != 1 || s.StreamsMade < 3 || s.StreamsMade > 5 {
		t.Errorf("%+v", s)
	}
	if s, _ := f.loop.Snapshot(); len(s.Flows) != 1 || s.Flows[0].Name != "a" {
		t.Errorf("flows: %+v", s.Flows)
	}
}

// An operation whose range is not known passes and is counted, as a readv(2) before Linux 6.14.
func TestAnOperationWithoutARangePasses(t *testing.T) {
	f := newFixture(t, map[string]device.Rule{"slow": {Weight: 1, Mode: device.Enforce, Limit: 64 * kib}})
	file := f.file("cold", mib)
	f.hold(f.operation("slow", file, -1, -1))
	if s := f.scheduler.Stats(); s.Operations != 1 || s.Ungoverned != 1 || s.Streams != 0 {
		t.Errorf("%+v", s)
	}
}

// Threads of a pool read two parts of a file by turns. Their streams stay sequential, and do not end at each
// change of threads.
func TestThreadsOfAPool(t *testing.T) {
	f := newFixture(t, nil)
	const half = 8 * mib
	file := f.file("cold", 2*half)
	for n, off := 0, int64(0); off < half; n, off = n+1, off+256*kib {
		for part := range 2 {
			op := f.operation("a", file, int64(part)*half+off, 256*kib)
			op.TID = 1000000 + (n+part)%2
			f.hold(op)
		}
	}
	// The first part's streams have 1, 4 and 11 MiB. The second begins with a single read.
	if s := f.scheduler.Stats(); s.Ungoverned != 0 || s.Streams != 2 || s.StreamsMade != 3+4 {
		t.Errorf("%+v", s)
	}
}

// An operation that waits keeps its stream, although another thread's operation would continue it.
func TestAWaitingOperationKeepsItsStream(t *testing.T) {
	f := newFixture(t, map[string]device.Rule{"slow": {Weight: 1, Mode: device.Enforce, Limit: 64 * kib}})
	file := f.file("cold", 4*mib)
	var passed atomic.Int32
	const threads = 8
	for n := range threads {
		op := f.operation("slow", file, int64(n)*64*kib, 64*kib)
		op.TID, op.Allow = 1000000+n, func() { passed.Add(1) }
		f.scheduler.Handle(op)
	}
	// The first stream would let all but the last pass.
	if n := passed.Load(); n > 2 {
		t.Errorf("%d of %d operations passed at once", n, threads)
	}
}

func TestALimitHoldsReaders(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := newFixture(t, map[string]device.Rule{"slow": {Weight: 1, Mode: device.Enforce, Limit: 8 * mib}})
	const size = 12 * mib
	file := f.file("cold", size)
	begin := time.Now()
	for off := int64(0); off < size; off += 256 * kib {
		f.hold(f.operation("slow", file, off, 256*kib))
	}
	if took := time.Since(begin); took < 800*time.Millisecond {
		t.Errorf("12 MiB at 8 MiB/s took %v", took)
	}
}

// Writers pass while there is room for their backlog; with a limit, no faster than the limit. What
// they wrote reaches the device without fsync.
func TestWritesAreDrained(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := newFixture(t, map[string]device.Rule{"slow": {Weight: 1, Mode: device.Enforce, Limit: 8 * mib}})
	for name, base := range map[string]int64{"whole": 0, "sparse": 1 << 30} {
		file := f.file(name, 0)
		begin := time.Now()
		const size, step = 24 * mib, 3 * mib // longer than a lease
		for off := base; off < base+size; off += step {
			op := f.operation("slow", file, off, step)
			op.Write = true
			f.hold(op)
			if _, err := file.WriteAt(make([]byte, step), off); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took < time.Second {
			t.Errorf("%s: 24 MiB at 8 MiB/s took %v", name, took)
		}
		pages := f.folder.Wrap(file)
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			state, err := pages.Query(base, size)
			if err != nil {
				t.Fatal(err)
			}
			if state.Unsaved == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d bytes are not drained", name, state.Unsaved)
			}
		}
	}
}

// A write may take longer than the time after which it is reported. Its other part counts while the thread still uses the
// stream, and not only when the stream is closed. If the end of the write is never reached, the scheduler checks the file
// less and less often. The test gives the scheduler its ticks.
func TestASlowWrite(t *testing.T) {
	const all, half, page = 3 * mib, 3 * mib / 2, 4 * kib
	for _, c := range []struct {
		name   string
		end    int64
		atMost int // checks of the file
	}{
		{"slow", all, 2},
		{"rounded", all - page + 1, 2}, // the length of some writes is only known in whole pages
		{"short", all - page, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			f := newFixture(t, nil)
			f.stopTicks()
			file := f.file("file", 0)
			op := f.operation("a", file, 0, all)
			op.Write = true
			f.hold(op)
			passed := time.Now()
			st := f.scheduler.streams.recent.Keys()[0]
			checks := 0
			for after := reportAfter; after < idleAfter; after += tickPeriod {
				if was := st.checkAfter; was > 0 {
					size := int64(half)
					if after > reportAfter {
						size = c.end
					}
					if err := file.Truncate(size); err != nil {
						t.Fatal(err)
					}
					f.scheduler.tick(passed.Add(after))
					if st.checkAfter != was {
						checks++
						f.counts(size)
					}
				}
			}
			if checks < 2 || checks > c.atMost {
				t.Errorf("the scheduler checked the file %d times, want 2 to %d", checks, c.atMost)
			}
			f.counts(c.end)
			if s := f.scheduler.Stats(); s.Streams != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// counts waits until so many bytes of the only flow are its backlog or written.
func (f *fixture) counts(want int64) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	var got int64
	if err := poll.Until(ctx, 10*time.Millisecond, func() (bool, error) {
		if s, _ := f.loop.Snapshot(); len(s.Flows) == 1 {
			got = s.Flows[0].Backlog + s.Flows[0].Bytes[1]
		}
		return got == want, nil
	}); err != nil {
		f.Fatalf("%d bytes count, want %d: %v", got, want, err)
	}
}

// At depth 1, one direct operation runs at a time, and the next begins when the system call of the one
// before has returned. The test writes the threads' counters itself, since Go's runtime makes calls
// of its own in a thread that only waits for the daemon's answer.
func TestDirectOperationsAreDeviceRequests(t *testing.T) {
	f := newFixture(t, nil)
	f.scheduler.options.Procfs = t.TempDir()
	file := f.file("direct", 8*mib)
	var running, most, operations atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			counters := filepath.Join(f.scheduler.options.Procfs, fmt.Sprint(os.Getpid()), "task", fmt.Sprint(unix.Gettid()))
			calls := func(n int) {
				text := fmt.Sprintf("rchar: 1\nsyscr: %d\nsyscw: 0\n", n)
				err := errors.Join(os.WriteFile(counters+"/new", []byte(text), 0o600), os.Rename(counters+"/new", counters+"/io"))
				if err != nil {
					t.Error(err)
				}
			}
			if err := os.MkdirAll(counters, 0o700); err != nil {
				t.Error(err)
			}
			calls(0)
			direct, err := os.OpenFile(file.Name(), os.O_RDWR|unix.O_DIRECT, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer direct.Close()
			mapped, err := unix.Mmap(-1, 0, mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON) // aligned
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Munmap(mapped)
			for n := range 16 {
				op := f.operation("direct", file, int64(n%8)*mib, mib)
				op.Direct, op.Write = true, n%2 == 1
				f.hold(op)
				operations.Add(1)
				if now := running.Add(1); now > most.Load() {
					most.Store(now)
				}
				if op.Write {
					_, err = unix.Pwrite(int(direct.Fd()), mapped, op.Offset)
				} else {
					_, err = unix.Pread(int(direct.Fd()), mapped, op.Offset)
				}
				if err != nil {
					t.Error(err)
				}
				running.Add(-1)
				calls(n + 1)
			}
		})
	}
	all.Wait()
	if most.Load() != 1 || operations.Load() != 64 {
		t.Errorf("%d operations, at most %d at a time", operations.Load(), most.Load())
	}
	if s, _ := f.loop.Snapshot(); len(s.Flows) != 1 {
		t.Errorf("%+v", s.Flows)
	}
}

func TestInDoubtOperationsPass(t *testing.T) {
	f := newFixture(t, nil)
	file := f.file("file", mib)
	refused := errors.New("no more descriptors")
	for name, change := range map[string]func(*Operation){
		"a device without a loop": func(op *Operation) { op.Device++ },
		"a file that cannot be opened": func(op *Operation) {
			op.Open = func() (*os.File, error) { return nil, refused }
		},
		"a write of such a file": func(op *Operation) {
			op.Write, op.Open = true, func() (*os.File, error) { return nil, refused }
		},
		"no length":         func(op *Operation) { op.Length = 0 },
		"a negative offset": func(op *Operation) { op.Offset = -1 },
		"a pipe": func(op *Operation) {
			op.Open = func() (*os.File, error) {
				r, w, err := os.Pipe()
				if err == nil {
					w.Close()
				}
				return r, err
			}
		},
	} {
		op := f.operation("a", file, 0, 4*kib)
		change(&op)
		target := f.scheduler.options.Target
		if name == "a device without a loop" {
			f.scheduler.options.Target = func(uint64) (Target, bool) { return Target{}, false }
		}
		f.hold(op)
		f.scheduler.options.Target = target
	}
	f.stopLoop()
	f.hold(f.operation("a", file, 0, 4*kib))
	op := f.operation("a", file, 0, 4*kib)
	op.Direct = true
	f.hold(op)
}

// thread writes the counters of a thread that does not exist.
func (f *fixture) thread(tid int) (returned func()) {
	f.Helper()
	dir, n := filepath.Join(f.scheduler.options.Procfs, fmt.Sprint(os.Getpid()), "task", fmt.Sprint(tid)), 0
	write := func() {
		text := fmt.Sprintf("syscr: %d\nsyscw: 0\n", n)
		if err := errors.Join(os.WriteFile(dir+"/new", []byte(text), 0o600), os.Rename(dir+"/new", dir+"/io")); err != nil {
			f.Error(err)
		}
		n++
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.Fatal(err)
	}
	write()
	return write
}

// The limit also holds operations that are longer than a quantum. They leave no stream behind.
func TestLongDirectOperations(t *testing.T) {
	for _, write := range []bool{false, true} {
		f := newFixture(t, map[string]device.Rule{"slow": {Weight: 1, Mode: device.Enforce, Limit: 32 * mib}})
		f.scheduler.options.Procfs = t.TempDir()
		file, returned := f.file("direct", 0), f.thread(77)
		const size, n = 8 * mib, 12
		begin := time.Now()
		for i := range n {
			op := f.operation("slow", file, int64(i)*size, size)
			op.TID, op.Direct, op.Write = 77, true, write
			f.hold(op)
			returned()
		}
		if took := time.Since(begin); took < 1500*time.Millisecond {
			t.Errorf("write %v: 96 MiB at 32 MiB/s took %v", write, took)
		}
		ended := func() (bool, error) {
			s, _ := f.loop.Snapshot()
			f.scheduler.mu.Lock()
			left := len(f.scheduler.waiting) + len(f.scheduler.threads)
			f.scheduler.mu.Unlock()
			return s.Staged == 0 && s.Flows[0].Streams == 0 && left == 0, nil
		}
		if err := poll.Until(t.Context(), 20*time.Millisecond, ended); err != nil {
			t.Error(err)
		}
		f.scheduler.marks.Lock()
		if len(f.scheduler.parts) != 0 {
			t.Errorf("write %v: %d parts are left", write, len(f.scheduler.parts))
		}
		f.scheduler.marks.Unlock()
	}
}

// The second event of one system call passes at once, so that the device is not taken to be stuck.
func TestTwoEventsOfOneCall(t *testing.T) {
	f := newFixture(t, map[string]device.Rule{"slow": {Weight: 1, Mode: device.Enforce, Limit: mib}})
	f.scheduler.options.Procfs = t.TempDir()
	file := f.file("direct", mib)
	f.thread(78)
	op := f.operation("slow", file, 0, 64*kib)
	op.TID, op.Direct = 78, true
	f.hold(op)
	begin := time.Now()
	op.Write = true
	f.hold(op)
	if took := time.Since(begin); took > returnsWithin/2 {
		t.Errorf("the second event passed after %v", took)
	}
}

// A write that has failed leaves no gap for which the next write would wait.
func TestAFailedWrite(t *testing.T) {
	f := newFixture(t, nil)
	file := f.file("w", 0)
	for off := range int64(3) {
		op := f.operation("a", file, 16*mib*off, 16*mib)
		op.Write, op.TID = true, 80
		begin := time.Now()
		f.hold(op) // and the call fails
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("write %d passed after %v", off, took)
		}
	}
}

// When the daemon begins to enforce, streams that were opened before do not remain ungoverned.
func TestReset(t *testing.T) {
	f := newFixture(t, map[string]device.Rule{"slow": {Weight: 1, Mode: device.Enforce, Limit: mib}})
	file := f.file("cold", 32*mib)
	var passed atomic.Int32
	for n := range 20 {
		op := f.operation("slow", file, int64(n)*mib, mib)
		op.TID, op.Direct, op.Async = 1000000+n, n%2 == 1, true
		op.Allow = func() { passed.Add(1) }
		f.scheduler.Handle(op)
	}
	f.scheduler.Reset()
	if n := passed.Load(); n != 20 {
		t.Errorf("%d of 20 operations passed", n)
	}
	if s := f.scheduler.Stats(); s.Streams != 0 {
		t.Errorf("%+v", s)
	}
}

// A thread that has ended, or whose device's loop has ended, does not delay other operations.
func TestEndLetsOperationsPass(t *testing.T) {
	f := newFixture(t, map[string]device.Rule{"slow": {Weight: 1, Mode: device.Enforce, Limit: mib}})
	file := f.file("cold", 32*mib)
	var passed atomic.Int32
	for n := range 20 {
		op := f.operation("slow", file, int64(n)*mib, mib)
		op.TID = 1000000 + n
		op.Allow = func() { passed.Add(1) }
		f.scheduler.Handle(op)
	}
	if s := f.scheduler.Stats(); s.Streams != 20 {
		t.Errorf("%+v", s)
	}
	f.scheduler.mu.Lock()
	f.scheduler.streams.recent.Purge()
	f.scheduler.mu.Unlock()
	if n := passed.Load(); n != 20 {
		t.Errorf("%d of 20 operations passed", n)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	f := newFixture(t, map[string]device.Rule{"slow": {Weight: 1, Mode: device.Enforce, Limit: mib}})
	file := f.file("cold", 4*mib)
	shared, err := os.Open(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	var passed atomic.Int32
	const threads = maxStreams + 100
	for n := range threads {
		op := f.operation("slow", file, int64(threads-n)*512, 512) // backwards, so that none continues another's stream
		op.TID, op.Allow = 1000000+n, func() { passed.Add(1) }
		f.scheduler.Handle(op)
	}
	// On a slow machine, some streams are idle for long enough to be closed, and some operations pass because the
	// loop's heartbeat is late.
	if s := f.scheduler.Stats(); s.Streams > maxStreams || s.StreamsMade+s.Ungoverned != threads {
		t.Errorf("%+v", s)
	}
	if n := passed.Load(); n < threads-maxStreams {
		t.Errorf("%d operations passed", n)
	}
}

func FuzzParseCalls(f *testing.F) {
	f.Add([]byte("rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\n"))
	f.Add([]byte("syscr: x"))
	f.Add([]byte("syscr: 9223372036854775807\nsyscw: 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := parseCalls(b); err != nil && n != 0 {
			t.Errorf("%q: %d, %v", b, n, err)
		}
	})
}
