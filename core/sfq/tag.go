package sfq

import (
	"math/bits"
	"strconv"
	"strings"
)

// tag is a point in virtual time, in cost units per weight: a signed fixed-point
// number of 128 bits, 96 before the point and 32 behind it.
//
// Why integers: a float's rounding grows with its size, so a device that is
// busy for weeks would tell small requests less and less apart, and two machines
// might round differently. Why 32 bits behind the point: the smallest step, one
// cost unit at MaxWeight, is 4,295 of the last place. Why 128 in all: a request
// moves a tag by less than 2^41, so it takes 2^54 of the largest requests at
// weight 1 within one busy period to leave the range, over 50 years at ten
// million a second, and the end of a busy period sets the clock back to 0. A change of
// weight makes what a flow is behind or ahead by up to 2^20 times larger, once, however
// often it changes, as it keeps the service that it stands for: 2^34 of the largest
// requests are left, 600,000 years of a device whose costs are nanoseconds.
// Hence no operation here checks for overflow.
//
// How rounding is kept from adding up: see member.served.
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

// scale returns a*num/den, rounded down, both 1 to MaxWeight. The result must be within the
// range.
func (a tag) scale(num, den int32) tag {
	negative := a.hi < 0
	if negative {
		a = tag{}.sub(a)
	}
	// a*num has up to 148 bits, in three words, the highest one below den's 2^20 or the
	// result would be out of range.
	n, d := uint64(num), uint64(den)
	c, lo := bits.Mul64(a.lo, n)
	top, hi := bits.Mul64(uint64(a.hi), n)
	hi, carry := bits.Add64(hi, c, 0)
	top += carry
	if top >= d {
		panic("sfq: a tag out of range")
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

// span returns cost/weight, rounded down, also where cost is negative.
func perWeight(cost int64, weight int32) tag {
	w := int64(weight)
	q := cost / w
	r := cost - q*w
	if r < 0 {
		q, r = q-1, r+w
	}
	// r < 2^20, so r<<32 keeps below 2^52.
	frac := uint64(r) << 32 / uint64(w)
	return tag{q >> 32, uint64(q)<<32 | frac}
}

// String prints a tag rounded to three places, for people.
func (a tag) String() string {
	a = a.add(tag{0, 1<<32/2000 + 1})
	whole := a.hi<<32 | int64(a.lo>>32) // exact while below 2^63
	s := strconv.FormatInt(whole, 10)
	if thousandths := (a.lo & (1<<32 - 1)) * 1000 >> 32; thousandths != 0 {
		s += "." + strings.TrimRight(strconv.FormatUint(1000+thousandths, 10)[1:], "0")
	}
	return s
}
