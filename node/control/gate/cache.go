package gate

import "sync/atomic"

const (
	cacheEntries = 1 << 14
	maxTID       = 1 << 22 // the kernel's PID_MAX_LIMIT
	tickMask     = 1<<22 - 1
	epochMask    = 1<<8 - 1
	ruleMask     = 1<<12 - 1
	// cacheLife is how long the rule of a thread is used before the thread is examined again, in ticks.
	// So the gate notices a new user, control group or command of a process within this time, and a
	// thread id that is used again has the rule of the former thread for this time at most.
	cacheLife = 10
)

// cache maps threads to the rule that matches them. Two threads whose ids differ by a multiple of
// cacheEntries displace each other. Several threads use the cache without locks, because an entry is one
// word: 22 bits of the thread id, 22 bits of the tick when the entry was made, 8 bits of the epoch of the
// rules, and 12 bits of the rule's number.
type cache struct{ entries [cacheEntries]atomic.Uint64 }

// get returns the number of the rule that matches the thread, or 0 if the thread passes. known reports
// whether the cache has the thread.
func (c *cache) get(tid int32, tick, epoch uint32) (rule int, known bool) {
	if tid <= 0 || tid >= maxTID {
		return 0, false
	}
	e := c.entries[tid%cacheEntries].Load()
	if e>>42 != uint64(tid) || uint32(e>>12)&epochMask != epoch&epochMask {
		return 0, false
	}
	if (tick-uint32(e>>20))&tickMask >= cacheLife {
		return 0, false
	}
	return int(e & ruleMask), true
}

func (c *cache) put(tid int32, rule int, tick, epoch uint32) {
	if tid <= 0 || tid >= maxTID {
		return
	}
	c.entries[tid%cacheEntries].Store(uint64(tid)<<42 | uint64(tick&tickMask)<<20 | uint64(epoch&epochMask)<<12 | uint64(rule&ruleMask))
}
