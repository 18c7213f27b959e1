package device

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
)

// profile sets the costs of the model disk.
func profile(c *Config) {
	lines := cost.Coefficients{
		Random:     cost.Line{Fixed: 10 * time.Millisecond, PerMiB: mib * time.Second / 12e6},
		Sequential: cost.Line{PerMiB: mib * time.Second / 12e6},
	}
	c.Cost = cost.Model{Read: lines, Write: lines}
}

// verdict waits until the device is reported as slow, or as no longer slow, and returns how long
// that took.
func (r *fixture) verdict(slow bool, patience time.Duration) time.Duration {
	r.t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		snap, ok := r.loop.Snapshot()
		if !ok {
			r.t.Fatal("the loop has ended")
		}
		if snap.Slow.Slow == slow {
			return time.Since(began)
		}
		if time.Since(began) > patience {
			r.t.Fatalf("after %v the verdict is %+v", patience, snap.Slow)
		}
	}
}

func TestSlowDiskIsNoticedWithinTenSeconds(t *testing.T) {
	loads := map[string]func(r *fixture, done *sync.WaitGroup){
		"two writers": func(r *fixture, done *sync.WaitGroup) { r.writer("a", 2000*mib, done); r.writer("b", 2000*mib, done) },
		"two readers": func(r *fixture, done *sync.WaitGroup) {
			r.reader("a", 2000*mib, 0, done)
			r.reader("b", 2000*mib, 0, done)
		},
		"a mix": func(r *fixture, done *sync.WaitGroup) {
			r.reader("a", 2000*mib, 0, done)
			r.writer("b", 2000*mib, done)
		},
		"a slow reader": func(r *fixture, done *sync.WaitGroup) { r.reader("a", 2000*mib, 3e6, done) },
	}
	configs := map[string]func(*Config){
		"profiled":      profile,
		"unprofiled":    func(*Config) {},
		"depth follows": func(c *Config) { profile(c); c.Algorithm = "sfqd2" },
	}
	for load, start := range loads {
		for name, config := range configs {
			t.Run(load+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newFixture(t, config, nil)
					var done sync.WaitGroup
					start(r, &done)
					for range 300 {
						time.Sleep(100 * time.Millisecond)
						if snap, _ := r.loop.Snapshot(); snap.Slow.Slow {
							t.Fatalf("the device is called slow at once: %+v", snap.Slow)
						}
					}
					r.disk.slower(10)
					t.Logf("noticed after %v", r.verdict(true, 10*time.Second))
					time.Sleep(30 * time.Second)
					if snap, _ := r.loop.Snapshot(); math.Abs(snap.Slow.Factor-10) > 3 {
						t.Errorf("ten times slower is said to be %.1f", snap.Slow.Factor)
					}
					r.disk.slower(1)
					t.Logf("recovered after %v", r.verdict(false, 25*time.Second))
					r.apply(Off, "", Rule{})
					done.Wait()
					r.stop()
					if n := strings.Count(r.log.String(), "level=WARN"); n != 1 || strings.Count(r.log.String(), "as fast as before") != 1 {
						t.Errorf("want one warning and one recovery in the log:\n%s", &r.log)
					}
				})
			})
		}
	}
}

// foreign makes requests that bypass the loop until stop is closed.
func (r *fixture) foreign(length int64, depth int, stop chan struct{}, done *sync.WaitGroup) {
	for i := range depth {
		f := r.disk.newFile(fmt.Sprint("foreign/", i), 1<<40)
		done.Go(func() {
			for n := int64(0); ; n++ {
				select {
				case <-stop:
					return
				default:
					r.disk.do(f, n%2 == 0, n*10*mib, length)
				}
			}
		})
	}
}

func TestNoFalseAlarm(t *testing.T) {
	for _, config := range []func(*Config){profile, func(*Config) {}} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, config, nil)
			watch := func(what string, length time.Duration) {
				t.Helper()
				for range length / (100 * time.Millisecond) {
					time.Sleep(100 * time.Millisecond)
					if snap, _ := r.loop.Snapshot(); snap.Slow.Slow {
						t.Fatalf("%s: called slow: %+v", what, snap.Slow)
					}
				}
			}
			var done, others sync.WaitGroup
			for range 20 {
				r.reader("a", 3*mib, 0, &done)
				r.writer("b", mib/2, &done)
				watch("bursts", 7*time.Second)
			}
			r.reader("a", 4000*mib, 0, &done)
			watch("load", 20*time.Second)
			for _, length := range []int64{4096, 64 << 10, mib} {
				stop := make(chan struct{})
				r.foreign(length, 9, stop, &others)
				watch(fmt.Sprintf("foreign requests of %d bytes", length), time.Minute)
				close(stop)
				others.Wait()
				watch("afterwards", 10*time.Second)
			}
			r.apply(Off, "", Rule{})
			done.Wait()
			r.stop()
		})
	}
}

// The account of service is the device's time.
func TestServiceIsDeviceTime(t *testing.T) {
	for name, config := range map[string]func(*Config){"profiled": profile, "unprofiled": func(*Config) {}} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, config, map[string]int{"a": 3, "b": 1})
			var done sync.WaitGroup
			r.reader("a", 2000*mib, 0, &done)
			r.writer("b", 2000*mib, &done)
			time.Sleep(30 * time.Second)
			before := r.flowNow("a").Service + r.flowNow("b").Service
			time.Sleep(time.Minute)
			service := r.flowNow("a").Service + r.flowNow("b").Service - before
			if got := service.Seconds() / 60; got < 0.97 || got > 1.03 {
				t.Errorf("%s: %.1f %% of the time of a busy device is accounted for", name, 100*got)
			}
			r.apply(Off, "", Rule{})
			done.Wait()
			r.stop()
		})
	}
}

// A request that continues where the last one ended pays no seek. Until a request is done, it
// counts as sequential; then the flow pays the difference.
func TestSeeksAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { profile(c); c.FixedDepth = 1 }, nil)
		f := r.disk.newFile("x", 16*mib)
		read := func(from, to int64) {
			s := r.loop.Open(OpenRequest{Marker: newGate(), Flow: "a", Block: f, From: from, To: to})
			r.loop.Progress(s, from)
			time.Sleep(2 * time.Second)
			r.loop.Close(s, to)
			time.Sleep(time.Second)
		}
		m := r.loop.cfg.Cost
		read(0, 4*mib) // 256 KiB, 256, 512, 1, 2 MiB
		want := m.Of(false, true, 4*mib) + 10*time.Millisecond
		if got := r.flowNow("a").Service; (got - want).Abs() > time.Microsecond {
			t.Errorf("4 MiB in a row cost %v, want %v", got, want)
		}
		read(8*mib, 8*mib+256<<10)
		want += m.Of(false, false, 256<<10)
		if got := r.flowNow("a").Service; (got - want).Abs() > time.Microsecond {
			t.Errorf("with 256 KiB at another place: %v, want %v", got, want)
		}
		r.stop()
	})
}

func TestCostsOfAConfig(t *testing.T) {
	line := depth.Line{Fixed: time.Millisecond, PerMiB: time.Millisecond}
	for _, name := range []string{"sfq", "sfqd", "sfqd2"} {
		c := Config{Algorithm: name, Depth: depth.Config{Read: line}}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		if m := c.Model(); m.Write.Random != cost.Line(line) {
			t.Errorf("writes without a line of their own cost %v", m.Write)
		}
		if _, err := New(Options{Name: "x", Config: c, Policy: policyOf(nil), Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for want, change := range map[string]func(*Config){
		"algorithm \"x\": use one of": func(c *Config) { c.Algorithm = "x" },
		"cost of random reads":        func(c *Config) { profile(c); c.Cost.Read.Random.PerMiB = 1 },
	} {
		c := Config{Depth: depth.Config{Read: line}}
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want something with %q", err, want)
		}
	}
}

// service returns the disk's time for each flow's requests. from is the number of first requests,
// of all flows, that do not count.
func (d *modelDisk) service(from int) map[string]time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]time.Duration{}
	for i := max(from, 1); i < len(d.log); i++ {
		s, before := d.log[i], d.log[i-1]
		took := time.Duration(float64(s.length) / float64(d.rate) * float64(time.Second))
		if s.name != before.name || s.offset != before.offset+before.length {
			took += d.seek
		}
		flow, _, _ := strings.Cut(s.name, "/")
		out[flow] += took
	}
	return out
}

// With a profile, weights divide the disk's time, seeks included, and each flow's account of it
// is right. Quanta are small here, so that seeks are a fifth of the time.
func TestProfiledSharesAreOfDeviceTime(t *testing.T) {
	for name, writers := range map[string][2]bool{"readers": {}, "a mix": {false, true}, "writers": {true, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, func(c *Config) { profile(c); c.Quantum, c.Ahead = 512<<10, 8 }, map[string]int{"a": 3, "b": 1})
				var done sync.WaitGroup
				for i, flow := range []string{"a", "b"} {
					if writers[i] {
						r.writer(flow, 2000*mib, &done)
					} else {
						r.reader(flow, 2000*mib, 0, &done)
					}
				}
				time.Sleep(10 * time.Second)
				r.disk.mu.Lock()
				from := len(r.disk.log)
				r.disk.mu.Unlock()
				a, b := r.flowNow("a").Service, r.flowNow("b").Service
				time.Sleep(time.Minute)
				account := map[string]time.Duration{"a": r.flowNow("a").Service - a, "b": r.flowNow("b").Service - b}
				service := r.disk.service(from)
				if ratio := service["a"].Seconds() / service["b"].Seconds(); math.Abs(ratio/3-1) > 0.03 {
					t.Errorf("device time is shared %.3f : 1", ratio)
				}
				for flow, want := range service {
					if off := account[flow].Seconds()/want.Seconds() - 1; math.Abs(off) > 0.02 {
						t.Errorf("%s: the account says %v, the disk %v: %+.1f %%", flow, account[flow], want, 100*off)
					}
				}
				r.apply(Off, "", Rule{})
				done.Wait()
				r.stop()
			})
		})
	}
}

// Without a profile, weights divide bytes, whichever flow seeks; but the account contains the
// time of seeks.
func TestAnUnprofiledAccountKnowsSeeks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) {
			c.Quantum, c.Ahead, c.Seek = 512<<10, 8, 20*time.Millisecond // two seeks of 10 ms: Seek counts double
		}, map[string]int{"a": 3, "b": 1})
		defer r.stop()
		var done sync.WaitGroup
		r.writer("a", 2000*mib, &done)
		r.writer("b", 2000*mib, &done)
		time.Sleep(10 * time.Second)
		r.disk.mu.Lock()
		from := len(r.disk.log)
		r.disk.mu.Unlock()
		a, b := r.flowNow("a"), r.flowNow("b")
		time.Sleep(time.Minute)
		a2, b2 := r.flowNow("a"), r.flowNow("b")
		if ratio := float64(a2.Bytes[1]-a.Bytes[1]) / float64(b2.Bytes[1]-b.Bytes[1]); math.Abs(ratio/3-1) > 0.03 {
			t.Errorf("bytes are shared %.3f : 1", ratio)
		}
		service := r.disk.service(from)
		want := service["a"].Seconds() / service["b"].Seconds()
		got := (a2.Service - a.Service).Seconds() / (b2.Service - b.Service).Seconds()
		if math.Abs(want/3-1) < 0.02 {
			t.Fatalf("seeks make no difference here: %.3f : 1", want)
		}
		if math.Abs(got/want-1) > 0.03 {
			t.Errorf("the account says %.3f : 1, the disk %.3f", got, want)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// Foreign load makes every request take longer. The depth does not change, so the governed flows
// keep their part of the device.
func TestForeignLoadDoesNotMoveTheDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { profile(c); c.Algorithm = "sfqd2" }, nil)
		var done, foreign sync.WaitGroup
		r.reader("a", 4000*mib, 0, &done)
		r.writer("b", 4000*mib, &done)
		depth := func() (mean float64) {
			const samples = 400
			for range samples {
				time.Sleep(100 * time.Millisecond)
				snap, _ := r.loop.Snapshot()
				mean += snap.Control.Depth / samples
			}
			return mean
		}
		time.Sleep(20 * time.Second)
		alone := depth()
		stop := make(chan struct{})
		r.foreign(mib, 4, stop, &foreign)
		time.Sleep(20 * time.Second)
		beside := depth()
		if alone < 1.5 || math.Abs(beside-alone) > alone/4 {
			t.Errorf("mean depth %.2f, with four foreign requests %.2f", alone, beside)
		}
		close(stop)
		foreign.Wait()
		r.apply(Off, "", Rule{})
		done.Wait()
		r.stop()
	})
}
