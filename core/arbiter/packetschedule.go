package arbiter

import "time"

// packetSchedule reserves device time for forced packets. It reserves at most a tenth of each
// second, which is the budget of forced packets. A reservation is identified by the number of its
// second, from 1.
type packetSchedule struct {
	seconds []scheduleSecond // indexed by number modulo the length
}

type scheduleSecond struct {
	number int64
	time   time.Duration
	each   time.Duration // device time of the packet that was reserved last
}

const (
	notReserved   = 0
	noReservation = -1
)

// newPacketSchedule returns a schedule. The time ahead is how far in the future a reservation can
// be.
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

// reserve reserves device time for a packet that takes the time took. It chooses the second of the
// deadline or, if that second is full, a later one up to latest, or otherwise an earlier one. at is
// the time of the packet, and place is its reservation. If no second has room, at is the deadline
// and place is noReservation.
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

// tryReserve reserves a packet's device time in a second, and reports whether there was room.
func (p *packetSchedule) tryReserve(number int64, took time.Duration) bool {
	b := p.second(number)
	if b.time+took/2 > time.Second/forcedFraction && b.time > 0 {
		return false
	}
	b.time += took
	b.each = took
	return true
}

// release gives a reservation back.
func (p *packetSchedule) release(place int64) {
	if place <= 0 {
		return
	}
	if b := &p.seconds[place%int64(len(p.seconds))]; b.number == place {
		b.time = max(0, b.time-b.each)
	}
}
