package sfq

import (
	"math/bits"
	"strconv"
	"strings"
)

// tag is a point in virtual time, in cost units per weight: a signed fixed-point number of 128
// bits, 96 before the binary point and 32 behind it.
//
// A tag is an integer because the rounding error of a float grows with its size. A device that is
// busy for weeks could no longer tell small requests apart, and two machines might round
// differently.
//
// A tag has 32 bits behind the binary point. The smallest step, one cost unit at MaxWeight, is then
// 4,295 units of the last place.
//
// A tag has 128 bits in all because a request moves a tag by less than 2^41. So a busy period can
// have 2^54 of the largest requests at weight 1 before tags overflow, which takes over 50 years at
// ten million requests a second. Changes of a flow's weight, however many, can scale the distance
// of its tag from the virtual time by up to 2^20 in all, because each change preserves the service
// that the distance stands for. That leaves 2^34 of the largest requests, or 600,000 years for costs
// in nanoseconds. So no operation checks for overflow.
//
// Rounding errors do not accumulate; see member.served.
type tag struct {
	hi int64
	lo uint64
}

func (a tag) less(b tag) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func (a tag) add(b tag) tag {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	return tag{a.hi + b.hi + int64(carry), lo}
}

func (a tag) sub(b tag) tag {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	return tag{a.hi - b.hi - int64(borrow), lo}
}

// scale returns a*num/den, rounded down, for num and den of 1 to MaxWeight. The result must be in
// range.
func (a tag) scale(num, den int32) tag {
	negative := a.hi < 0
	if negative {
		a = tag{}.sub(a)
	}
	// a*num has up to 148 bits, in three words. The highest word is below den, or the result would
	// be out of range.
	n, d := uint64(num), uint64(den)
	c, lo := bits.Mul64(a.lo, n)
	top, hi := bits.Mul64(uint64(a.hi), n)
	hi, carry := bits.Add64(hi, c, 0)
	top += carry
	if top >= d {
		panic("sfq: tag out of range")
	}
	hi, r := bits.Div64(top, hi, d)
	lo, r = bits.Div64(r, lo, d)
	out := tag{int64(hi), lo}
	if negative {
		out = tag{}.sub(out)
		if r > 0 {
			out = out.sub(tag{0, 1})
		}
	}
	return out
}

func maxTag(a, b tag) tag {
	if a.less(b) {
		return b
	}
	return a
}

// perWeight returns cost/weight, rounded down even if cost is negative.
func perWeight(cost int64, weight int32) tag {
	w := int64(weight)
	q := cost / w
	r := cost - q*w
	if r < 0 {
		q, r = q-1, r+w
	}
	// r < 2^20, so r<<32 < 2^52.
	frac := uint64(r) << 32 / uint64(w)
	return tag{q >> 32, uint64(q)<<32 | frac}
}

// String formats a tag, rounded to three decimal places.
func (a tag) String() string {
	a = a.add(tag{0, 1<<32/2000 + 1})
	whole := a.hi<<32 | int64(a.lo>>32) // exact while below 2^63
	s := strconv.FormatInt(whole, 10)
	if thousandths := (a.lo & (1<<32 - 1)) * 1000 >> 32; thousandths != 0 {
		s += "." + strings.TrimRight(strconv.FormatUint(1000+thousandths, 10)[1:], "0")
	}
	return s
}
