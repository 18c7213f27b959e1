package arbiter

import "time"

// packetSchedule reserves device time for forced packets. It reserves at most a tenth of each
// second, which is the budget of forced packets. A reservation is the number of its second, from 1.
type packetSchedule struct {
	seconds []scheduleSecond // indexed by number modulo the length
}

type scheduleSecond struct {
	number int64
	time   time.Duration
	each   time.Duration // device time of the last packet
}

const (
	notReserved   = 0
	noReservation = -1
)

// newPacketSchedule returns a schedule for reservations up to ahead from now.
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

// reserve reserves a second for a packet with the given device time. It takes the second of the
// deadline or, if that is full, a later one up to latest, or an earlier one. at is the time of the
// packet, which is the deadline if no second has room.
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
