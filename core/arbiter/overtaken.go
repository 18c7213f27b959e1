package arbiter

import "time"

// Overtaken requests. The kernel's scheduler may serve requests in another order than the arbiter
// starts them. mq-deadline serves reads by ascending position: a read below or far above a
// sequential stream waits until the stream's batch of 16 requests ends, or for 500 ms. Then one
// stream of another flow fills all slots, while the flow of the waiting read, if it has no other
// stream, is not backlogged and receives nothing. HDFS has such a read for each 16 MiB of a block,
// in the checksum file. On a modelled disk with mq-deadline, two readers with weights of 3:1 had
// shares of 2.0:1 to 2.4:1 because of it.
//
// SFQ(D) assumes that at most D-1 requests are ahead of a request once it has started. So the
// arbiter bounds overtaking: when later requests of other flows that are worth D quanta of device time
// have ended before a read, no request starts until that read ends. The kernel has nothing else to serve then.
// The arbiter waits once for each read, and at most twice as long as the read had been in flight, so
// that a sector that cannot be read does not stop the device. The model of costs does not bound this
// wait, because the model of an unprofiled device can be wrong by a factor of 10. Reserved requests,
// small reads with a latency goal and forced packets start nevertheless.
//
// A read can be late for other reasons: a file that its owner locks, or one disk of several. The
// device is then idle for the rest of the wait, and several such reads, one after the other, would
// keep it idle. So after a wait, the next one begins only after restAfter times the device time that
// the wait has wasted: its length without the device time of the requests that ended during it.
// Bytes that the device did not move overtake no read.
type overtaking struct {
	request *Request      // the overtaken read that the device waits for, or nil
	until   time.Duration // the latest end of this wait
	since   time.Duration // the beginning of this wait
	worked  time.Duration // device time of the requests that have ended since then
	rest    time.Duration // no wait begins before
}

const (
	maxAwait  = time.Second // longest wait for an overtaken read
	restAfter = 4           // waits waste at most a fifth of the device time
)

// end ends the wait.
func (o *overtaking) end(now time.Duration) {
	*o = overtaking{rest: now + restAfter*max(0, now-o.since-o.worked)}
}

// noteOvertaken records that a request has ended before other flows' reads that were started earlier.
func (a *Arbiter) noteOvertaken(ended *Request, moved int64, now time.Duration) {
	o := &a.overtaking
	served := time.Duration(0)
	if moved = min(moved, ended.Length); moved > 0 {
		served = time.Duration(float64(ended.served) * float64(moved) / float64(ended.Length))
	}
	if o.worked += served; o.request == ended {
		o.end(now)
	}
	if len(a.running) == 0 || a.cfg.Network {
		return
	}
	for _, q := range a.running {
		if q.Write || q.number > ended.number || q.flow == ended.flow {
			continue
		}
		q.overtaken += served
		if o.request == nil && now >= o.rest && !q.awaited && q.overtaken >= time.Duration(a.depth)*a.pricing.served(false, true, a.cfg.Quantum) {
			q.awaited = true
			o.request, o.since, o.until, o.worked = q, now, now+min(maxAwait, 2*(now-q.started)), 0
		}
	}
}

// awaitsOvertaken reports whether no request may start, because the device waits for an overtaken
// read.
func (a *Arbiter) awaitsOvertaken(now time.Duration) bool {
	o := &a.overtaking
	if o.request != nil && now >= o.until {
		o.end(now)
	}
	return o.request != nil
}
