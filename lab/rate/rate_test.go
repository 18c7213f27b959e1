package rate

import (
	"errors"
	"io"
	"math"
	"testing"
	"time"
)

// TestFit: fit returns the rate and the delay from which the arrivals were computed.
func TestFit(t *testing.T) {
	begin := time.Now()
	for _, c := range []struct {
		name     string
		old, new float64
		delay    time.Duration
		burst    int64
	}{
		{"down", 40e6, 10e6, 20 * time.Millisecond, 1000},
		{"down, in bursts", 40e6, 10e6, 20 * time.Millisecond, 128 << 10},
		{"up", 10e6, 40e6, 5 * time.Millisecond, 64 << 10},
		{"at once", 10e6, 40e6, 0, 64 << 10},
	} {
		var arrivals []arrival
		const before = 12345
		for sent := c.burst; ; sent += c.burst {
			at := time.Duration(float64(sent) / c.old * float64(time.Second))
			if at > c.delay {
				at = c.delay + time.Duration((float64(sent)-c.old*c.delay.Seconds())/c.new*float64(time.Second))
			}
			if at > time.Second {
				break
			}
			arrivals = append(arrivals, arrival{begin.Add(at), before + sent})
		}
		got, err := fit(arrivals, begin, before, c.old, 200*time.Millisecond)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if math.Abs(got.Rate/c.new-1) > 0.001 || (got.Delay-c.delay).Abs() > time.Millisecond {
			t.Errorf("%s: %.0f B/s after %v, want %.0f after %v", c.name, got.Rate, got.Delay, c.new, c.delay)
		}
	}
}

func TestFitOfTooLittle(t *testing.T) {
	begin := time.Now()
	for name, arrivals := range map[string][]arrival{
		"none":          nil,
		"too early":     {{begin, 1}, {begin.Add(1), 2}, {begin.Add(2), 3}},
		"two":           {{begin.Add(time.Second), 1}, {begin.Add(2 * time.Second), 2}},
		"at one moment": {{begin.Add(time.Second), 1}, {begin.Add(time.Second), 2}, {begin.Add(time.Second), 3}},
	} {
		if got, err := fit(arrivals, begin, 0, 1, time.Millisecond); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestMeter measures a stream whose sender changes its own rate.
func TestMeter(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	m := New(r)
	rates := make(chan float64, 1)
	sent := make(chan int64)
	go func() {
		total, rate, next := int64(0), 2e6, time.Now()
		for rate > 0 {
			n, err := w.Write(make([]byte, 4000))
			total += int64(n)
			if err != nil {
				break
			}
			select {
			case rate = <-rates:
				next = time.Now()
			default:
			}
			next = next.Add(time.Duration(4000 / rate * float64(time.Second)))
			time.Sleep(time.Until(next))
		}
		w.CloseWithError(errors.New("stopped"))
		sent <- total
	}()
	old := m.Over(200 * time.Millisecond)
	if old < 1e6 || old > 3e6 {
		t.Errorf("a stream of 2 MB/s has %.0f B/s", old)
	}
	got, err := m.Change(old, func() error { rates <- 0.5e6; return nil }, 200*time.Millisecond, 300*time.Millisecond)
	if err != nil || got.Rate < 0.3e6 || got.Rate > 0.8e6 || got.Delay.Abs() > 200*time.Millisecond {
		t.Errorf("changed to 0.5 MB/s: %+v, %v", got, err)
	}
	rates <- 0
	if want := <-sent; m.Bytes() != want {
		t.Errorf("%d bytes arrived, want %d", m.Bytes(), want)
	}
	if _, err := m.Change(1, func() error { return nil }, time.Millisecond, time.Millisecond); err == nil {
		t.Error("no error after the end of the stream")
	}
	bad := errors.New("bad")
	if _, err := m.Change(1, func() error { return bad }, time.Millisecond, time.Millisecond); !errors.Is(err, bad) {
		t.Errorf("a change that fails: %v", err)
	}
}
