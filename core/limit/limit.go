// Package limit enforces a rate. It decides when a request may proceed without exceeding the rate.
//
// A share (package sfq) divides the device's service. It does not keep an application from using a
// whole device while no other application has a backlog. An operator sets a rate to prevent that,
// because the device is reserved for other applications later, or because bytes cost money. The
// limit comes before the scheduler: a flow over its limit is not backlogged, so the limit affects
// neither the scheduler and its tags nor other flows.
//
// A token bucket needs a size. A small bucket loses rate with every delay, a large one lets a burst
// pass after each pause, and a request larger than the bucket never fits. Here the account is kept
// in time, as in the virtual scheduling form of the leaky bucket (GCRA). A request of any size may
// proceed once all earlier requests are paid for. It then adds to the account the time that its
// bytes take at the rate. Some bytes bypass the limit, because the kernel wrote them out or a
// starved stream was let through. These bytes are charged afterwards, and later requests wait until
// they are paid for. A bound on this wait prevents that one such event stops an application for
// minutes.
//
// The same account paces a device with its own rate, for example a network interface. It then
// covers all flows together.
//
// golang.org/x/time/rate does not fit: it has no bound on debt, cannot return unused bytes, and
// counts its tokens as floats.
package limit

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Limits of a rate, in bytes per second.
const (
	MinRate = 1 << 10
	MaxRate = 1 << 40
)

// MinLimit is the lowest limit of an application, in bytes per second. A lower limit would not
// hold, because the arbiter lets a stream through after MaxWait, regardless of its limit.
const MinLimit = 64 << 10

// MaxTime is the largest Credit and Debt.
const MaxTime = time.Hour

// Config configures a Bucket.
type Config struct {
	// Rate is in bytes per second, MinRate to MaxRate.
	Rate int64

	// Credit is the unused time that can be made up for, 0 to MaxTime. After a pause, the bytes of
	// this time at the rate may pass at once. Credit compensates for callers that are late.
	Credit time.Duration

	// Debt bounds the wait that Charge can cause for later requests, 0 to MaxTime.
	Debt time.Duration
}

// Validate returns an error if a setting is out of range.
func (c Config) Validate() error {
	switch {
	case c.Rate < MinRate || c.Rate > MaxRate:
		return fmt.Errorf("limit: rate %d bytes/s: use %d to %d", c.Rate, int64(MinRate), int64(MaxRate))
	case c.Credit < 0 || c.Credit > MaxTime:
		return fmt.Errorf("limit: credit %v: use 0s to %v", c.Credit, MaxTime)
	case c.Debt < 0 || c.Debt > MaxTime:
		return fmt.Errorf("limit: debt %v: use 0s to %v", c.Debt, MaxTime)
	}
	return nil
}

// Bucket is the account of one limit. It is not safe for concurrent use. Times are durations since
// any fixed moment, from a clock that does not go back.
type Bucket struct {
	cfg Config

	// All bytes taken so far are paid for at paidUntil plus remainder/rate nanoseconds.
	paidUntil time.Duration
	remainder uint64
}

// New returns a bucket without debt, with full credit.
func New(cfg Config) (*Bucket, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Bucket{cfg: cfg, paidUntil: -never}, nil
}

// Rate returns the rate in bytes per second.
func (b *Bucket) Rate() int64 { return b.cfg.Rate }

// Take takes bytes and returns 0 if they may pass now. Otherwise it changes nothing and returns the
// time after which the caller should try again. Negative numbers count as 0.
func (b *Bucket) Take(now time.Duration, bytes int64) (wait time.Duration) {
	if wait = b.Wait(now); wait == 0 {
		b.add(now, bytes)
	}
	return wait
}

// Wait returns the time until bytes may be taken, or 0 if they may be taken now.
func (b *Bucket) Wait(now time.Duration) time.Duration {
	wait := b.paidUntil - now
	if b.remainder > 0 {
		wait++ // a part of a nanosecond
	}
	return max(0, wait)
}

// Charge takes bytes that have passed without Take. Later requests wait for them, by at most
// Config.Debt. A negative number gives back bytes that were taken and did not pass.
func (b *Bucket) Charge(now time.Duration, bytes int64) {
	if bytes < 0 {
		b.giveBack(bytes)
		return
	}
	most := max(b.paidUntil, now+b.cfg.Debt)
	b.add(now, bytes)
	if b.paidUntil >= most {
		b.paidUntil, b.remainder = most, 0
	}
}

// Add takes bytes without a bound on the wait that follows.
func (b *Bucket) Add(now time.Duration, bytes int64) {
	if bytes < 0 {
		b.giveBack(bytes)
		return
	}
	b.add(now, bytes)
}

// TakeCredit takes bytes from unused time only. Later requests do not wait for them.
func (b *Bucket) TakeCredit(now time.Duration, bytes int64) {
	if bytes <= 0 || b.Wait(now) > 0 {
		return
	}
	if b.add(now, bytes); b.Wait(now) > 0 {
		b.paidUntil, b.remainder = now, 0
	}
}

// PaidUntil returns the time until which the bytes that were taken last the rate, rounded up. It is at least
// now minus Config.Credit.
func (b *Bucket) PaidUntil(now time.Duration) time.Duration {
	at := b.paidUntil
	if b.remainder > 0 {
		at++
	}
	return max(at, now-b.cfg.Credit)
}

// SetRate changes the rate, within the limits of Config.Rate. Debt is kept as a number of bytes.
func (b *Bucket) SetRate(now time.Duration, rate int64) error {
	cfg := b.cfg
	cfg.Rate = rate
	if err := cfg.Validate(); err != nil {
		return err
	}
	owed := int64(0)
	if b.paidUntil > now {
		owed = math.MaxInt64
		if hi, lo := bits.Mul64(uint64(b.paidUntil-now), uint64(b.cfg.Rate)); hi < uint64(time.Second) {
			q, _ := bits.Div64(hi, lo, uint64(time.Second))
			owed = int64(min(q, math.MaxInt64))
		}
		b.paidUntil, b.remainder = now, 0
	}
	b.cfg = cfg
	if owed > 0 {
		b.add(now, owed)
	}
	return nil
}

// add adds the time of the bytes. That time begins at now minus the credit at the earliest.
func (b *Bucket) add(now time.Duration, bytes int64) {
	if first := now - b.cfg.Credit; b.paidUntil < first {
		b.paidUntil, b.remainder = first, 0
	}
	took, rest := b.timeOf(uint64(max(bytes, 0)))
	rest += b.remainder
	if rest >= uint64(b.cfg.Rate) {
		rest -= uint64(b.cfg.Rate)
		took++
	}
	if took > never || b.paidUntil > never-took {
		b.paidUntil, b.remainder = never, 0
		return
	}
	b.paidUntil, b.remainder = b.paidUntil+took, rest
}

// giveBack removes the time of bytes, which is a negative number.
func (b *Bucket) giveBack(bytes int64) {
	took, rest := b.timeOf(-uint64(bytes))
	if rest > b.remainder {
		took++
		b.remainder += uint64(b.cfg.Rate)
	}
	b.remainder -= rest
	b.paidUntil = max(b.paidUntil, -never) - took
}

// never is a time that no clock reaches. The sum of two such times does not overflow.
const never = time.Duration(math.MaxInt64 / 4)

// timeOf returns how long the bytes take at the rate: whole nanoseconds, at most never, and the
// remainder in bytes times nanoseconds per second.
func (b *Bucket) timeOf(bytes uint64) (took time.Duration, rest uint64) {
	hi, lo := bits.Mul64(bytes, uint64(time.Second))
	if hi >= uint64(b.cfg.Rate) {
		return never, 0
	}
	q, rest := bits.Div64(hi, lo, uint64(b.cfg.Rate))
	if q >= uint64(never) {
		return never, 0
	}
	return time.Duration(q), rest
}

// Forfeit drops all credit beyond keep. It is called after a time in which the caller had nothing
// to take.
func (b *Bucket) Forfeit(now, keep time.Duration) {
	if first := now - keep; b.paidUntil < first {
		b.paidUntil, b.remainder = first, 0
	}
}
