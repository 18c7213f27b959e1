// Package rate measures the rate of a stream of bytes, and how soon a change of the rate takes effect.
//
// Problem: a changed rate is not in force at one instant. Bytes of the old rate are in flight, and a
// paced sender sends in bursts, so the rate of a few milliseconds is meaningless. Choice: a straight
// line is fitted to the arrivals well after the change. Its slope is the new rate. Its height at the
// moment of the change shows how many bytes arrived in excess of the new rate. The delay is the time for
// which the old rate has stayed in force. It follows from the excess and the difference of the two rates.
package rate

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
)

// maxArrivals is the maximum number of arrivals that a meter remembers.
const maxArrivals = 1 << 18

// Meter counts what arrives from a reader. Its methods may be called by several goroutines.
type Meter struct {
	mu       sync.Mutex
	bytes    int64
	record   bool
	arrivals []arrival
	err      error
}

type arrival struct {
	at    time.Time
	bytes int64 // number of bytes that had arrived by then
}

// New returns a meter that reads from r until r fails or ends. The caller must close r.
func New(r io.Reader) *Meter {
	m := &Meter{}
	go m.read(r)
	return m
}

func (m *Meter) read(r io.Reader) {
	buffer := make([]byte, 256<<10)
	for {
		n, err := r.Read(buffer)
		now := time.Now()
		m.mu.Lock()
		m.bytes, m.err = m.bytes+int64(n), err
		if m.record && len(m.arrivals) < maxArrivals {
			m.arrivals = append(m.arrivals, arrival{now, m.bytes})
		}
		m.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Bytes returns the number of bytes that have arrived.
func (m *Meter) Bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// Over measures for the time d, and returns the bytes per second that arrived.
func (m *Meter) Over(d time.Duration) float64 {
	begin, bytes := time.Now(), m.Bytes()
	time.Sleep(d)
	return float64(m.Bytes()-bytes) / time.Since(begin).Seconds()
}

// Change is the effect of a change of the rate.
type Change struct {
	Rate float64 // the new rate, in bytes per second
	// Delay is the time from the call of the function that changes the rate until the new rate was in
	// force. It can be slightly negative, because the measurement is not exact.
	Delay time.Duration
}

// Change calls set, which changes the rate, and measures the effect on the stream. old is the rate before, in
// bytes per second. The measurement of the new rate begins after the time settle and takes the time measure.
func (m *Meter) Change(old float64, set func() error, settle, measure time.Duration) (Change, error) {
	m.mu.Lock()
	m.record, m.arrivals = true, nil
	begin, before := time.Now(), m.bytes
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.record, m.arrivals = false, nil
		m.mu.Unlock()
	}()
	if err := set(); err != nil {
		return Change{}, err
	}
	time.Sleep(time.Until(begin.Add(settle + measure)))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return Change{}, fmt.Errorf("measure a changed rate: the stream ended: %w", m.err)
	}
	if len(m.arrivals) == maxArrivals {
		return Change{}, errors.New("measure a changed rate: too many arrivals: measure for a shorter time")
	}
	return fit(m.arrivals, begin, before, old, settle)
}

// fit fits a straight line to the arrivals that come later than settle after begin.
func fit(arrivals []arrival, begin time.Time, before int64, old float64, settle time.Duration) (Change, error) {
	var n, sumX, sumY, sumXX, sumXY float64
	for _, a := range arrivals {
		x := a.at.Sub(begin).Seconds()
		if x < settle.Seconds() {
			continue
		}
		y := float64(a.bytes - before)
		n, sumX, sumY, sumXX, sumXY = n+1, sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
	}
	spread := n*sumXX - sumX*sumX
	if n < 3 || spread <= 0 {
		return Change{}, fmt.Errorf("measure a changed rate: only %.0f arrivals: measure for a longer time", n)
	}
	c := Change{Rate: (n*sumXY - sumX*sumY) / spread}
	if old == c.Rate {
		return c, nil
	}
	excess := (sumY - c.Rate*sumX) / n // the line's height at begin
	seconds := excess / (old - c.Rate)
	if math.IsNaN(seconds) || math.Abs(seconds) > time.Hour.Seconds() {
		return Change{}, errors.New("measure a changed rate: the rates before and after the change do not differ enough")
	}
	c.Delay = time.Duration(seconds * float64(time.Second))
	return c, nil
}
