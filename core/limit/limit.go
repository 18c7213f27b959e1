// Package limit says when something may go on without passing a rate.
//
// A share (package sfq) says how what is there is divided; it does not keep an
// application from taking a device that nobody else wants. An operator who wants
// that, because the device is somebody else's tomorrow or because its bytes are
// paid for, sets a rate. So the limit stands before the scheduler: a flow over its
// limit has nothing queued, and the scheduler, its tags and everybody else do not
// notice.
//
// The usual bucket of tokens has to choose its size: a small one loses rate to
// every delay, a large one lets through a burst after each pause, and a request
// larger than the bucket never fits. Here the account is kept in time instead, as
// in the virtual scheduling form of the leaky bucket: a request of any size may go
// as soon as the ones before it are paid for, and then takes its bytes' time at the
// rate. What went past the bucket (the kernel wrote it out, a stream was let
// through because it had waited too long) is charged afterwards and paid off first,
// up to a bound, so that one mishap does not stop an application for minutes.
//
// The same account paces a device that has a rate of its own (a network
// interface): there it belongs to all flows together.
package limit

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Bounds of a rate, in bytes per second.
const (
	MinRate = 1 << 10
	MaxRate = 1 << 40
)

// MaxTime bounds Config's times.
const MaxTime = time.Hour

// Config sets up a Bucket.
type Config struct {
	// Rate is in bytes per second, MinRate to MaxRate.
	Rate int64

	// Credit is how much unused time may be made up for, 0 to MaxTime: after a
	// pause as much as the rate gives in it goes at once. It makes up for a caller
	// that comes late.
	Credit time.Duration

	// Debt bounds what Charge may make later requests wait, 0 to MaxTime.
	Debt time.Duration
}

// Validate refuses what is out of range.
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

// Bucket is one limit's account. It belongs to one caller at a time. Times are
// durations since any fixed moment, from a clock that does not go back.
type Bucket struct {
	cfg Config

	// All that was taken is paid for at this time, and rest/rate nanoseconds.
	paidUntil time.Duration
	remainder uint64
}

// New makes a bucket without debt, and with all its credit.
func New(cfg Config) (*Bucket, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Bucket{cfg: cfg, paidUntil: -never}, nil
}

// Rate is in bytes per second.
func (b *Bucket) Rate() int64 { return b.cfg.Rate }

// Take asks for bytes (a negative number counts as 0). If they may go now, they
// are taken and wait is 0; if not, nothing is changed, and the same question is
// worth asking again after wait, not before.
func (b *Bucket) Take(now time.Duration, bytes int64) (wait time.Duration) {
	if wait = b.Wait(now); wait == 0 {
		b.add(now, bytes)
	}
	return wait
}

// Wait returns how long nothing may be taken, 0 if something may be now.
func (b *Bucket) Wait(now time.Duration) time.Duration {
	wait := b.paidUntil - now
	if b.remainder > 0 {
		wait++ // the part of a nanosecond
	}
	return max(0, wait)
}

// Charge books bytes that went without being asked for, and later requests wait
// for them, by no more than Config.Debt. Negative bytes are given back: they were
// taken and did not go.
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

// SetRate changes the rate, which must be one that New takes. What is owed stays
// owed, in bytes.
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

// add moves paid by the bytes' time, from now less the credit at the earliest.
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

// giveBack takes the time of that many bytes, a negative number, off again.
func (b *Bucket) giveBack(bytes int64) {
	took, rest := b.timeOf(-uint64(bytes))
	if rest > b.remainder {
		took++
		b.remainder += uint64(b.cfg.Rate)
	}
	b.remainder -= rest
	b.paidUntil = max(b.paidUntil, -never) - took
}

// far is a time that is never reached, and can be added to itself.
const never = time.Duration(math.MaxInt64 / 4)

// span is how long that many bytes take at the rate, as whole nanoseconds and
// what is left over, in bytes times nanoseconds per second. It is far at most.
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

// Forfeit gives up all credit beyond keep, for a caller that wanted nothing meanwhile.
func (b *Bucket) Forfeit(now, keep time.Duration) {
	if first := now - keep; b.paidUntil < first {
		b.paidUntil, b.remainder = first, 0
	}
}
