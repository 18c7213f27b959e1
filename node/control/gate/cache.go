package gate

import "sync/atomic"

const (
	cacheEntries = 1 << 14
	maxTID       = 1 << 22 // the kernel's PID_MAX_LIMIT
	tickMask     = 1<<22 - 1
	epochMask    = 1<<8 - 1
	ruleMask     = 1<<12 - 1
	// cacheLife is how long the class of a thread is used before it is looked up again, in ticks. It
	// bounds how late a new user, control group or command of a process is noticed, and how long a
	// reused thread id has the class of its predecessor.
	cacheLife = 10
)

// cache maps threads to the rule that matches them. Two threads whose ids differ by a multiple of
// cacheEntries displace each other. It is used by several threads without locks: an entry is one
// word, 22 bits of thread id, 22 of the tick when it was made, 8 of the epoch of the rules, 12 of the
// rule's number.
type cache struct{ entries [cacheEntries]atomic.Uint64 }

// get returns the number of the rule that matches the thread (0: none, it passes) and whether it is
// known.
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
