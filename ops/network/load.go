package network

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"
)

// operation is a small MapReduce operation: it counts the words of a text in parts, and adds up the counts. The
// paper's containers performed 1,000 MapReduce operations a minute each; these are scaled to fit many on one CPU.
type operation struct {
	parts  [][]byte
	counts []map[string]*int // pointers, so that a known word needs no copy of its text
	total  map[string]int
}

const (
	operationParts = 4
	words          = 512 // different ones
	maxTextBytes   = 16 << 20
)

func newOperation(textBytes int, seed uint64) *operation {
	random := rand.New(rand.NewPCG(seed, 0))
	o := &operation{total: map[string]int{}}
	for range operationParts {
		var text []byte
		for len(text) < textBytes/operationParts {
			text = fmt.Appendf(text, "word%d ", random.IntN(words))
		}
		o.parts = append(o.parts, text)
		o.counts = append(o.counts, map[string]*int{})
	}
	return o
}

// do performs the operation once. After the first time, it allocates no memory.
func (o *operation) do() {
	for i, text := range o.parts { // map
		for word := range bytes.FieldsSeq(text) {
			n := o.counts[i][string(word)]
			if n == nil {
				n = new(int)
				o.counts[i][string(word)] = n
			}
			*n++
		}
	}
	for _, counts := range o.counts { // reduce
		for word, n := range counts {
			o.total[word] += *n
			*n = 0
		}
	}
}

// operate performs operations at a rate until ended returns true. It returns the number of those that ended in the
// window. It never performs two at a time: if one is late, the next ones follow without a pause.
func operate(o *operation, perMinute int, w window, ended func() bool) (done int64) {
	each := time.Minute / time.Duration(perMinute)
	next := time.Now().Add(rand.N(each)) // the containers do not all begin at the same time
	for !ended() {
		if wait := time.Until(next); wait > 0 {
			// The thread itself sleeps. With time.Sleep, another thread would have to wake it.
			pause := unix.NsecToTimespec(min(wait, serverLook).Nanoseconds())
			_ = unix.Nanosleep(&pause, nil) // if a signal interrupts it, the loop continues it
			continue
		}
		o.do()
		if w.contains(time.Now()) {
			done++
		}
		next = next.Add(each)
	}
	return done
}
