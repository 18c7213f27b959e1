package sfq_test

import (
	"testing"

	"penstock/core/sfq"
)

// FuzzScheduler runs a byte string as operations of three bytes each: the operation, the flow and
// the amount. The first byte of the string selects the depth, the largest lead, and whether weights
// are powers of two. The model checks every decision. It is exact and takes quadratic time, so the
// length is bounded.
func FuzzScheduler(f *testing.F) {
	f.Add([]byte{1})
	f.Add([]byte{0x32, 3, 0, 5, 3, 1, 5, 11, 0, 2, 6, 0, 0, 6, 0, 0, 11, 0xe0, 3, 9, 0, 60, 11, 0xc1, 3, 2, 0, 9, 11, 1, 62})
	f.Fuzz(func(t *testing.T, ops []byte) { fuzz(t, ops) })
}

func fuzz(t *testing.T, ops []byte) {
	if len(ops) == 0 || len(ops) > 600 {
		return
	}
	exact := ops[0]&1 == 0
	depth := 1 + int(ops[0]>>1)%8
	p := newPair(t, sfq.Config{MaxFlows: 5, MaxQueues: 5, MaxLead: 1 << (ops[0] >> 4 * 4)}, depth, exact)
	p.addFlow(1)
	p.addFlow(32)
	for ops = ops[1:]; len(ops) >= 3; ops = ops[3:] {
		which, much := int(ops[1]), int(ops[2])
		// Most amounts are small, and a few are the largest.
		amount := min(1+int64(much&63)<<(much>>6*13), sfq.MaxCost)
		if ops[0] >= 250 {
			var path []sfq.Level
			for n := int(ops[0]) - 250; n > 0; n-- {
				path = append(path, sfq.Level{Name: string(rune('a' + much>>n&1)), Weight: min(int(amount), sfq.MaxWeight)})
			}
			p.setQueue(which, path)
			continue
		}
		switch ops[0] % 12 {
		case 0:
			p.addFlow(min(int(amount), sfq.MaxWeight))
		case 1:
			p.removeFlow(which)
		case 2:
			p.setWeight(which, min(int(amount), sfq.MaxWeight))
		case 3, 4, 5:
			p.submit(which, amount)
		case 6, 7:
			p.next()
		case 8:
			p.complete(which, -1)
		case 9:
			p.complete(which, amount-1)
		case 10:
			p.cancel(which, much&1 == 0)
		case 11:
			switch much & 3 {
			case 0:
				p.setDepth(which % 9)
			case 1:
				p.drain()
			case 2:
				p.charge(which, amount)
			case 3:
				switch {
				case which >= 0xe0:
					p.trim()
				case which >= 0xc0:
					p.void(which)
				default:
					p.charge(which, amount)
				}
			}
		}
	}
	p.drain()
}
