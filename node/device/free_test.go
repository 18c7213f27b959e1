package device

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// passing makes a small read that does not wait for marks. If the reader is early, it has locked its pages in the page
// cache before the daemon looks, and fetches them itself; otherwise the daemon does.
func (r *fixture) passing(flow string, bytes int64, early bool) *gate {
	r.nextID++
	g := newGate()
	f := r.disk.newFile(fmt.Sprintf("%s/%d", flow, r.nextID), bytes)
	if early {
		f.fill(0, bytes)
	}
	s := r.loop.Open(OpenRequest{Marker: g, ID: r.nextID, Flow: flow, Block: f, To: bytes, Passing: true})
	if early {
		r.disk.do(f, false, 0, bytes)
	} else {
		for pages, _ := f.Query(0, bytes); pages.Resident < bytes; pages, _ = f.Query(0, bytes) {
			time.Sleep(time.Millisecond)
		}
	}
	r.loop.Close(s, bytes)
	return g
}

// TestPassingReadsAreCharged checks that passing reads are charged what the disk does for them, also if they come first,
// and get no marks.
func TestPassingReadsAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, profile, nil)
		defer r.stop()
		time.Sleep(3 * time.Second)
		if !r.loop.Free() {
			t.Fatal("an idle device is not free")
		}
		const bytes, reads = 16 << 10, 600
		for i := range reads {
			if g := r.passing("a", bytes, i%3 > 0); g.last() != -1 {
				t.Fatalf("a passing read got the mark %d", g.last())
			}
			if !r.loop.Free() {
				t.Fatalf("the device is not free after read %d of a single flow", i)
			}
		}
		time.Sleep(3 * time.Second)
		f := r.flowNow("a")
		if got, want := f.Bytes[0], int64(reads*bytes); got < want*98/100 || got > want*102/100 {
			t.Errorf("%d bytes are charged, the disk has read %d", got, want)
		}
		// The model's disk takes this for each read: a seek and the transfer.
		want := reads * (10*time.Millisecond + bytes*time.Second/12e6)
		if got := f.Service; got < want*90/100 || got > want*110/100 {
			t.Errorf("%v of device time are charged, the disk has used %v", got, want)
		}
		if f.Waits != 0 {
			t.Errorf("passing reads have waited %d times", f.Waits)
		}
		if snap, _ := r.loop.Snapshot(); snap.Passed != reads || !snap.Free {
			t.Errorf("%d reads have passed, want %d; free: %v", snap.Passed, reads, snap.Free)
		}
	})
}

// TestWatchersHearThatADeviceIsNoLongerFree checks that a second flow ends the time in which the device is free, and
// that watchers hear it before anything else happens.
func TestWatchersHearThatADeviceIsNoLongerFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, profile, nil)
		stopped, other := make(chan struct{}, 1), make(chan struct{}, 1)
		end, again := r.loop.WatchFree(stopped), r.loop.WatchFree(stopped)
		endOther := r.loop.WatchFree(other)
		time.Sleep(3 * time.Second)
		r.passing("a", 4096, false)
		if len(stopped) > 0 {
			t.Fatal("a signal while one flow reads")
		}
		endOther()
		begin := time.Now()
		s := r.loop.Open(OpenRequest{Marker: newGate(), ID: 1000, Flow: "b", Block: r.disk.newFile("b", mib), To: mib})
		<-stopped
		if took := time.Since(begin); took > 0 {
			t.Errorf("the signal took %v of virtual time", took)
		}
		if r.loop.Free() {
			t.Error("the device is free after the signal")
		}
		if len(other) > 0 {
			t.Error("a signal to a watcher that has left")
		}
		r.loop.Close(s, 0)
		time.Sleep(3 * time.Second)
		if !r.loop.Free() {
			t.Error("the device is not free again")
		}
		end()
		r.stop()
		<-stopped // the loop ends, and the channel is still watched once
		if r.loop.Free() {
			t.Error("a device whose loop has ended is free")
		}
		again()
		if n := len(r.loop.free.watchers); n != 0 {
			t.Errorf("%d watchers are left", n)
		}
	})
}
