package arbiter_test

import (
	"fmt"
	"testing"
	"time"

	"penstock/core/arbiter"
)

// A flusher appends a few bytes to a file, pauses, and appends again, as a client that calls hflush does.
type flusher struct {
	w       *world
	s       *stream
	pos     int64
	bytes   int64 // bytes that one call of hflush writes
	pause   time.Duration
	from    time.Duration // since when the present call waits; 0 if it does not
	longest time.Duration
	calls   int
}

// flusher opens a file at the given time and keeps flushing to it.
func (w *world) flusher(flow, user string, at, pause time.Duration, bytes int64) *flusher {
	f := &flusher{w: w, bytes: bytes, pause: pause}
	w.after(at, func() {
		f.s = w.open(&stream{}, arbiter.Opening{Flow: flow, User: user, Write: true})
		f.from = w.now
		f.poll()
	})
	return f
}

// poll looks every millisecond whether the call may pass.
func (f *flusher) poll() {
	if f.s.mark <= f.pos {
		f.w.after(time.Millisecond, f.poll)
		return
	}
	f.longest = max(f.longest, f.w.now-f.from)
	f.calls++
	f.pos += f.bytes
	f.s.file.write(f.pos)
	f.w.progress(f.s, f.pos)
	f.w.after(f.pause, func() {
		f.from = f.w.now
		f.poll()
	})
}

// usersWorld is a disk on which ann writes many files in the flow clients, beside an application.
func usersWorld(t *testing.T, weight, writers int) *world {
	w := diskWorld(t, 2, enforced(map[string]int{"app": weight}), func(c *arbiter.Config) { c.Quantum = 2 * mib })
	w.writer("app", endlessFile)
	for range writers {
		w.drive(w.open(&stream{}, arbiter.Opening{Flow: "clients", User: "ann", Write: true}), 0, endlessFile)
	}
	return w
}

// writtenBy counts the bytes that the disk writes for each user of the flow clients.
func (w *world) writtenBy() map[string]int64 {
	users := map[string]int64{}
	w.began = func(r *arbiter.Request, flow string) {
		if flow == "clients" && r.Write {
			users[r.Stream.User] += r.Length
		}
	}
	return users
}

// TestASmallWriteDoesNotWaitForAnotherUsersBulkWrites checks that a user who flushes a few bytes, pauses, and flushes
// again does not wait for the backlog of a user with many writers, as long as he writes less than his part of the flow's
// share. His bytes are written and charged like all others: the flow gets no more than its share beside the application.
// Without the parts of users (writingusers.go), his longest wait was 45 s with 200 writers, and 1.9 s with one.
func TestASmallWriteDoesNotWaitForAnotherUsersBulkWrites(t *testing.T) {
	for _, writers := range []int{1, 30, 200} {
		for _, weight := range []int{1, 32} {
			for _, bytes := range []int64{4 * kib, 64 * kib, 256 * kib} {
				t.Run(fmt.Sprintf("%d writers, weight %d, %d KiB", writers, weight, bytes/kib), func(t *testing.T) {
					w := usersWorld(t, weight, writers)
					users := w.writtenBy()
					f := w.flusher("clients", "bob", 10*time.Second, 3*time.Second, bytes)
					w.run(131 * time.Second)
					if f.longest > 10*time.Millisecond || f.calls != 41 {
						t.Errorf("%d calls, longest wait %v: want 41 calls without a wait", f.calls, f.longest)
					}
					// What bob wrote in the last turns of the flow is still in the page cache.
					if late := f.pos - users["bob"]; late > f.pos/4+64*kib {
						t.Errorf("bob wrote %d bytes, the disk %d of them", f.pos, users["bob"])
					}
					for _, x := range w.a.Snapshot(w.now).Flows {
						if x.Name == "clients" && x.Bytes[1] != users["ann"]+users["bob"] && w.flying == 0 {
							t.Errorf("the flow is charged for %d bytes, the disk wrote %d for ann and %d for bob", x.Bytes[1], users["ann"], users["bob"])
						}
					}
					w.holds(t, map[string]int{"app": weight, "clients": 1}, 1.25, 30*time.Second, 130*time.Second)
				})
			}
		}
	}
}

// TestUsersThatWriteHaveEqualParts checks that one writer of a user gets as much as many writers of another user.
func TestUsersThatWriteHaveEqualParts(t *testing.T) {
	for _, weight := range []int{1, 8} {
		w := usersWorld(t, weight, 100)
		bob := w.drive(w.open(&stream{}, arbiter.Opening{Flow: "clients", User: "bob", Write: true}), 0, endlessFile)
		w.run(20 * time.Second)
		users := w.writtenBy()
		bob.longest = 0
		w.run(400 * time.Second)
		part := float64(users["bob"]) / float64(users["ann"]+users["bob"])
		t.Logf("weight %d: bob has %.3f of the bytes, longest wait %v", weight, part, bob.longestWait())
		if part < 0.45 || part > 0.55 {
			t.Errorf("weight %d: bob has %.3f of the bytes beside 100 writers of ann, want half", weight, part)
		}
	}
}

// TestAUserOwesNothingForUnusedRoom checks two things. If a user has written alone, and another user begins to
// write, each gets half at once. And many small writes of a user do not delay the user's later turns.
func TestAUserOwesNothingForUnusedRoom(t *testing.T) {
	for _, alone := range []string{"ann", "bob"} {
		w := usersWorld(t, 1, 0)
		write := func(user string) *agent {
			return w.drive(w.open(&stream{}, arbiter.Opening{Flow: "clients", User: user, Write: true}), 0, endlessFile)
		}
		ann := write("ann")
		if alone == "bob" {
			write("ann")
			w.flusher("clients", "bob", 0, 5*time.Millisecond, 256)
		}
		w.run(100 * time.Second)
		bob := write("bob")
		w.run(10 * time.Second)
		users := w.writtenBy()
		ann.longest, bob.longest = 0, 0
		w.run(30 * time.Second)
		part := float64(users["bob"]) / float64(users["ann"]+users["bob"])
		t.Logf("after 100 s of %s: bob has %.3f of the bytes; longest waits: ann %v, bob %v", alone, part, ann.longestWait(), bob.longestWait())
		if part < 0.4 || part > 0.6 || max(ann.longestWait(), bob.longestWait()) > 5*time.Second {
			t.Errorf("after 100 s of %s: bob has %.3f of the bytes; longest waits: ann %v, bob %v", alone, part, ann.longestWait(), bob.longestWait())
		}
	}
}

// TestThePartsOfUsersAreBounded checks that writers of many users have at most half of the bound more in their backlog
// than as many writers of one user.
func TestThePartsOfUsersAreBounded(t *testing.T) {
	for _, writers := range []int{2, 10, 63, 64, 65, 300} {
		var most [2]int64
		for i, users := range []int{1, writers} {
			w := usersWorld(t, 32, 0)
			for k := range writers {
				o := arbiter.Opening{Flow: "clients", User: fmt.Sprint("u", k%users), Write: true}
				w.after(min(time.Duration(k), 1)*10*time.Second, func() { w.drive(w.open(&stream{}, o), 0, endlessFile) })
			}
			w.settled = func() {
				for _, x := range w.a.Snapshot(w.now).Flows {
					if x.Name == "clients" {
						most[i] = max(most[i], x.Backlog)
					}
				}
			}
			w.run(60 * time.Second)
			if most[i] > most[0]+w.cfg.Backlog/2+64*packet {
				t.Errorf("%d writers of %d users: a backlog of %d bytes, and %d of one user", writers, users, most[i], most[0])
			}
		}
		t.Logf("%d writers: backlog up to %d KiB of one user, %d KiB of as many users", writers, most[0]/kib, most[1]/kib)
	}
}

// TestASmallReadDoesNotWaitForAnotherUsersReads checks that a read of a few bytes waits for the next turn of its flow's reads, however
// many reads of another user are queued. If the share is so small that the other user's readers starve, their forced packets use
// the whole share, and the read waits as they do.
func TestASmallReadDoesNotWaitForAnotherUsersReads(t *testing.T) {
	for _, readers := range []int{1, 100} {
		for _, weight := range []int{1, 32} {
			w := usersWorld(t, weight, 10)
			for range readers {
				w.drive(w.open(&stream{}, arbiter.Opening{Flow: "clients", User: "ann", To: endlessFile}), 0, endlessFile)
			}
			longest, calls := time.Duration(0), 0
			var next func()
			next = func() {
				g := w.drive(w.open(&stream{}, arbiter.Opening{Flow: "clients", User: "bob", To: packet}), 0, packet)
				g.then = func() {
					longest, calls = max(longest, g.longestWait()), calls+1
					w.after(3*time.Second, next)
				}
			}
			w.after(10*time.Second, next)
			w.run(190 * time.Second)
			// Between two turns of the flow, the application has `weight` quanta. One turn may belong to a write, and a run
			// of another file lasts up to a second.
			quantum := time.Duration(2*mib)*time.Second/testRate + testSeek
			bound := time.Duration(2*(weight+1)+4)*quantum + w.cfg.RunTime
			if readers == 100 && weight == 32 {
				bound = w.cfg.MaxWait + 4*quantum
			}
			t.Logf("%d readers, weight %d: %d reads, longest wait %v", readers, weight, calls, longest)
			if longest > bound || calls < 4 {
				t.Errorf("%d readers, weight %d: %d reads, longest wait %v, want at most %v", readers, weight, calls, longest, bound)
			}
		}
	}
}
