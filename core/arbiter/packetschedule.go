package arbiter

import "time"

// places says, second by second, for how much device time packets are booked: a tenth of it at the
// most, the budget of the forced lane. A place is the number of its second, from 1 on.
type packetSchedule struct {
	seconds []scheduleSecond // by number, modulo their count
}

type scheduleSecond struct {
	number int64
	time   time.Duration
	each   time.Duration // of a packet
}

const (
	notReserved   = 0
	noReservation = -1
)

// newPlaces returns places for so long ahead.
func newPacketSchedule(ahead time.Duration) packetSchedule {
	return packetSchedule{seconds: make([]scheduleSecond, int(ahead/time.Second)+3)}
}

func (p *packetSchedule) second(number int64) *scheduleSecond {
	b := &p.seconds[number%int64(len(p.seconds))]
	if b.number != number {
		*b = scheduleSecond{number: number}
	}
	return b
}

// book books a place for a packet that takes so much of the device's time: at the deadline or, if that
// is taken, later but no later than latest, or earlier. It returns when the packet is to go, which is
// the deadline if nothing is free.
func (p *packetSchedule) reserve(now, deadline, latest, took time.Duration) (at time.Duration, place int64) {
	number := func(t time.Duration) int64 { return int64(t/time.Second) + 1 }
	first, due := number(now), number(deadline)
	last := min(number(latest), first+int64(len(p.seconds))-1)
	for n := due; n <= last; n++ {
		if p.tryReserve(n, took) {
			return max(deadline, time.Duration(n-1)*time.Second), n
		}
	}
	for n := due - 1; n >= first; n-- {
		if p.tryReserve(n, took) {
			return max(now, time.Duration(n)*time.Second-1), n
		}
	}
	return deadline, noReservation
}

// take takes a packet's time from a second, and reports whether it was free.
func (p *packetSchedule) tryReserve(number int64, took time.Duration) bool {
	b := p.second(number)
	if b.time+took/2 > time.Second/forcedFraction && b.time > 0 {
		return false
	}
	b.time += took
	b.each = took
	return true
}

// free gives a place back.
func (p *packetSchedule) release(place int64) {
	if place <= 0 {
		return
	}
	if b := &p.seconds[place%int64(len(p.seconds))]; b.number == place {
		b.time = max(0, b.time-b.each)
	}
}
