package disk

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestModelIsTurnedOffAndOnAtOnce: an order that turns the model off ends all requests, even if the
// next order follows at once.
func TestModelIsTurnedOffAndOnAtOnce(t *testing.T) {
	for _, c := range []struct {
		name        string
		hangs, next Model
	}{
		{"channels", Model{BytesPerSecond: 4096, Channels: 1}, HDD(HDDRate)},
		{"one head", Model{BytesPerSecond: 4096}, HDD(HDDRate)},
		{"from one head to channels", Model{BytesPerSecond: 4096}, SSD(SSDRate)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			d := &device{backing: file, size: 64 * mib}
			d.wake = sync.NewCond(&d.mu)
			if d.alarm, err = newAlarm(); err != nil {
				t.Fatal(err)
			}
			go d.run() // both goroutines wait until the test's process ends
			go d.answer()
			for range 50 {
				if err := d.setModel(c.hangs); err != nil {
					t.Fatal(err)
				}
				const requests = 4
				var started, answered sync.WaitGroup
				started.Add(requests)
				for i := range int64(requests) {
					answered.Go(func() {
						started.Done()
						d.serve(Write, Monotonic(), i*mib, mib) // at the model's rate, 256 s
					})
				}
				started.Wait()
				for { // until the disk has all requests
					d.mu.Lock()
					has := len(d.underway) + len(d.arm.waiting)
					if d.arm.free > 0 {
						has++ // in service
					}
					d.mu.Unlock()
					if has == requests {
						break
					}
					time.Sleep(10 * time.Microsecond)
				}
				for _, m := range []Model{{}, c.next} {
					if err := d.setModel(m); err != nil {
						t.Fatal(err)
					}
				}
				done := make(chan struct{})
				go func() {
					answered.Wait()
					close(done)
				}()
				select {
				case <-done:
				case <-time.After(time.Minute):
					t.Fatal("a request waits although the model was turned off")
				}
			}
		})
	}
}
