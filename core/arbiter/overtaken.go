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
// A disk that serves one request at a time loses nothing: it works during the whole wait. A device that serves many
// requests at a time is partly idle, and its reads are late for another reason, so a wait does not help. Such a device does
// not wait if its profile says so, or if it has no profile and the kernel does not call it a hard disk. But most virtual
// disks look like hard disks, and a read can also be late because of a file that its owner locks. So the arbiter measures
// what a wait has wasted: its length, plus the time that the first request after it takes, less the device time of all
// requests that have ended in this time. That first request counts because slots that become empty together are filled
// together: if requests take equally long, no request ends before it. The next wait begins only after restAfter times
// the waste. Bytes that the device did not move overtake no read.
type overtaking struct {
	request *Request      // the overtaken read that the device waits for, or nil
	until   time.Duration // the latest end of this wait
	since   time.Duration // the beginning of this wait
	length  time.Duration // of a wait that has ended and is not judged yet, or 0
	last    uint64        // number of the last request that started before the end of that wait
	worked  time.Duration // device time of the requests that have ended since the beginning of the wait
	rest    time.Duration // no wait begins before this time
}

const (
	maxAwait    = time.Second // longest wait for an overtaken read
	restAfter   = 99          // waits waste at most a hundredth of the device's time, as measured
	costsTooLow = 1.25        // the model's costs may be too low by a quarter
)

// oneAtATime reports whether the device serves one request at a time, as far as is known.
func (a *Arbiter) oneAtATime() bool {
	if a.cfg.Profiled() {
		return a.pricing.partOf(false, a.cfg.Quantum) == 1
	}
	return a.cfg.Seek > 0
}

// endAwait ends the wait.
func (a *Arbiter) endAwait(now time.Duration) {
	o := &a.overtaking
	o.request, o.length, o.last = nil, max(1, now-o.since), a.started
}

// judge sets when the next wait may begin. took is how long the first request that started after the wait has taken.
func (o *overtaking) judge(now, took time.Duration) {
	waste := o.length + took - time.Duration(costsTooLow*float64(o.worked))
	*o = overtaking{rest: now + restAfter*max(0, waste)}
}

// noteOvertaken records that a request has ended before other flows' reads that were started earlier.
func (a *Arbiter) noteOvertaken(ended *Request, moved int64, now time.Duration) {
	o := &a.overtaking
	served := time.Duration(0)
	if moved = min(moved, ended.Length); moved > 0 {
		served = time.Duration(float64(ended.served) * float64(moved) / float64(ended.Length))
		o.worked += a.pricing.served(ended.Write, false, moved)
	}
	switch {
	case o.request == ended:
		a.endAwait(now)
	case o.length > 0 && ended.number > o.last:
		o.judge(now, now-ended.started)
	}
	if len(a.running) == 0 || a.cfg.Network || !a.oneAtATime() {
		return
	}
	for _, q := range a.running {
		if q.Write || q.Stream.Turn || q.number > ended.number || q.flow == ended.flow {
			continue
		}
		q.overtaken += served
		if o.request == nil && o.length == 0 && now >= o.rest && !q.awaited && q.overtaken >= time.Duration(a.depth)*a.pricing.served(false, true, a.cfg.Quantum) {
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
		a.endAwait(now)
	}
	return o.request != nil
}
