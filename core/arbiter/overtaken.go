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
type overtaking struct {
	request *Request      // the overtaken read that the device waits for, or nil
	until   time.Duration // the latest end of this wait
}

const maxAwait = time.Second // longest wait for an overtaken read

// noteOvertaken records that a request has ended before other flows' reads that were started earlier.
func (a *Arbiter) noteOvertaken(ended *Request, now time.Duration) {
	o := &a.overtaking
	if o.request == ended {
		*o = overtaking{}
	}
	if len(a.running) == 0 || a.cfg.Network {
		return
	}
	for _, q := range a.running {
		if q.Write || q.number > ended.number || q.flow == ended.flow {
			continue
		}
		q.overtaken += time.Duration(ended.served)
		if o.request == nil && !q.awaited && q.overtaken >= time.Duration(a.depth)*a.pricing.served(false, true, a.cfg.Quantum) {
			q.awaited = true
			o.request, o.until = q, now+min(maxAwait, 2*(now-q.started))
		}
	}
}

// awaitsOvertaken reports whether no request may start, because the device waits for an overtaken
// read.
func (a *Arbiter) awaitsOvertaken(now time.Duration) bool {
	o := &a.overtaking
	if o.request != nil && now >= o.until {
		*o = overtaking{}
	}
	return o.request != nil
}
