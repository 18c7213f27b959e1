package gated

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"penstock/node/device"
)

// An operation that bypasses the page cache is a stream of its own. The loop sees a substitute for its file,
// whose bytes are not resident (for a read) or not saved (for a write). When the loop stages or drains these
// bytes, the substitute lets the thread's own system call run, and waits until the call has returned. So the
// request counts for the depth, and its latency is measured, as for the daemon's own requests.
//
// A long operation cannot be cut into quanta: the request for its first quantum lets all of it run. The other
// quanta are charged when the call has returned, and the thread's next direct operation waits until then.
//
// A system call may have two events, as copy_file_range(2) has for its two files. The second event passes
// at once, and is charged. If it waited, the call would not return, and the first request would keep its
// place at the device.

const (
	pollFirst = 200 * time.Microsecond // first interval between two looks at the thread; it doubles
	pollLast  = 4 * time.Millisecond
	// returnsWithin is the longest wait for a system call. It is well below the time after which a device
	// counts as stuck (Config.Stuck, 12 s), because a process can make its call take as long as it likes.
	returnsWithin = 4 * time.Second
	// directPatience is the longest wait of a direct operation for its turn. The bound is needed, because
	// the arbiter does not let closed streams pass by itself.
	directPatience = 30 * time.Second
)

// direct schedules an operation that bypasses the page cache. s.mu is held.
func (s *Scheduler) direct(loop *device.Loop, op Operation) {
	d := &directFile{op: op, options: &s.options, loop: loop, ready: make(chan struct{}), ended: make(chan struct{}), since: time.Now()}
	d.End, d.Write, d.Do = op.Offset+op.Length, op.Write, d.await
	d.part.scheduler = s
	last := s.threads[op.TID]
	if last != nil && !last.over() {
		if last.running() {
			d.second = true
			d.SetDone()
			d.pass()
		} else if !last.hasNext {
			// The rest of the thread's last operation has not been charged yet.
			last.hasNext = true
			s.threads[op.TID] = d
			s.waiting[d] = struct{}{}
			go func() {
				<-last.ended
				s.mu.Lock()
				defer s.mu.Unlock()
				s.begin(d)
			}()
			return
		}
	} else if len(s.threads) >= maxStreams {
		d.pass() // beyond the bound
		s.stats.Ungoverned++
		return
	}
	s.threads[op.TID] = d
	s.waiting[d] = struct{}{}
	s.begin(d)
}

// begin opens the stream of a direct operation. s.mu is held.
func (s *Scheduler) begin(d *directFile) {
	op := d.op
	id := s.number(&d.part)
	d.part.wait(device.Open, d.pass) // passes at once when the loop does not govern it
	d.part.at = d.loop.Open(device.OpenRequest{Marker: s, ID: id, Flow: op.Flow, User: op.User,
		Kind: device.Persistent, Write: op.Write, Block: d, From: op.Offset, To: op.Offset + op.Length})
	close(d.ready)
	switch {
	case op.Write:
		d.loop.Progress(d.part.at, op.Offset+op.Length)
		d.loop.Close(d.part.at, op.Offset+op.Length)
	case d.second:
		d.loop.Close(d.part.at, op.Offset+op.Length)
	}
}

// tickDirect lets direct operations pass that have waited for too long, or whose device is stuck or has
// no running loop. s.mu is held.
func (s *Scheduler) tickDirect(now time.Time) {
	for d := range s.waiting {
		switch {
		case d.over():
			delete(s.waiting, d)
			if s.threads[d.op.TID] == d {
				delete(s.threads, d.op.TID)
			}
		case now.Sub(d.since) > directPatience || !d.loop.Alive() || d.loop.Stuck():
			d.pass()
		}
	}
}

// directFile is the file of a direct operation. It implements device.File.
type directFile struct {
	device.Elsewhere
	op      Operation
	options *Options
	loop    *device.Loop
	part    part
	since   time.Time
	ready   chan struct{} // part.at is set
	ended   chan struct{} // closed when the stream has ended and all is charged
	second  bool          // the second event of a system call: it is only charged
	hasNext bool          // the thread's next operation waits for the end; protected by the scheduler's mu

	passed sync.Once
	closed sync.Once
	mu     sync.Mutex
	begun  bool
	before int64 // number of the thread's calls that had returned when the operation passed; -1: not known
}

// pass lets the operation pass, once.
func (d *directFile) pass() {
	d.passed.Do(func() {
		before, err := d.calls()
		if err != nil || d.op.Async {
			before = -1
		}
		d.mu.Lock()
		d.begun, d.before = true, before
		d.mu.Unlock()
		d.op.Allow()
	})
}

// over reports whether the stream has ended.
func (d *directFile) over() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// running reports whether the operation has passed and its system call has not returned.
func (d *directFile) running() bool {
	d.mu.Lock()
	begun, before := d.begun, d.before
	d.mu.Unlock()
	if !begun || before < 0 {
		return false
	}
	now, err := d.calls()
	return err == nil && now == before
}

// Stage implements device.File. Bytes that have not been staged are charged at the end of the stream.
func (d *directFile) Stage(off, length int64) error {
	err := d.Elsewhere.Stage(off, length)
	<-d.ready
	d.loop.Close(d.part.at, d.op.Offset+d.op.Length)
	return err
}

// Close implements device.File. The stream has ended, so Close lets the operation pass.
func (d *directFile) Close() error {
	d.closed.Do(func() {
		d.pass()
		d.part.forget()
		close(d.ended)
	})
	return nil
}

// await lets the operation pass and waits until it is done.
func (d *directFile) await() {
	d.pass()
	d.mu.Lock()
	before := d.before
	d.mu.Unlock()
	if before < 0 {
		time.Sleep(min(d.options.Expect(d.op.Write, d.op.Length), returnsWithin))
		return
	}
	wait := pollFirst
	for deadline := time.Now().Add(returnsWithin); time.Now().Before(deadline); {
		time.Sleep(wait)
		if now, err := d.calls(); err != nil || now != before {
			return // the call has returned, or the thread has ended
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
	return parseCalls(b)
}

// parseCalls returns the sum of a thread's read and write calls, from its io file in procfs. (The library
// procfs reads only the file of a whole process.)
func parseCalls(b []byte) (sum int64, err error) {
	found := 0
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		for _, name := range []string{"syscr: ", "syscw: "} {
			value, ok := bytes.CutPrefix(lines.Bytes(), []byte(name))
			if !ok {
				continue
			}
			n, err := strconv.ParseInt(string(value), 10, 62)
			if err != nil {
				return 0, err
			}
			sum += n
			found++
		}
	}
	if found != 2 {
		return 0, fmt.Errorf("the thread's io file in /proc has no count of system calls (%q); the kernel needs CONFIG_TASK_XACCT", b)
	}
	return sum, nil
}
