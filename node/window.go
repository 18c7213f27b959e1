package node

import (
	"time"

	"penstock/node/device"
	"penstock/node/monitor"
	"penstock/node/status"
)

const (
	samplePeriod  = time.Second
	windowSamples = 5 // a window is this many periods long, or up to one period longer
)

// history holds samples of a device from the last seconds, oldest first.
type history struct {
	samples      []sample
	own          [2]int64 // bytes moved or charged, also of flows that have ended; read, written
	foreign      [2]monitor.Foreign
	foreignBytes [2]int64 // foreign bytes so far
}

// sample holds the counts at the beginning of a window.
type sample struct {
	at           time.Time
	counters     monitor.Counters
	counted      bool
	foreignBytes [2]int64
	flows        map[string]flowCount
}

// flowCount holds the counters of a flow at one moment.
type flowCount struct {
	service   time.Duration
	bytes     [2]int64
	waits     int64
	wouldWait time.Duration
}

func countOf(f device.FlowSnapshot) flowCount {
	return flowCount{f.Service, f.Bytes, f.Waits, f.WouldWait}
}

// since returns c minus old. The loop drops a flow that has been idle for long, together with its
// counts; if the flow becomes active again, its counts start at 0.
func (c flowCount) since(old flowCount) flowCount {
	if c.service < old.service {
		old = flowCount{}
	}
	for d := range c.bytes {
		c.bytes[d] -= old.bytes[d]
	}
	c.service -= old.service
	c.waits -= old.waits
	c.wouldWait -= old.wouldWait
	return c
}

// add adds a reading of a device that answered.
func (h *history) add(r reading, quantum int64) {
	s := sample{at: r.at, counters: r.counters, counted: r.counted, flows: make(map[string]flowCount, len(r.snap.Flows))}
	var last map[string]flowCount
	if n := len(h.samples); n > 0 {
		last = h.samples[n-1].flows
	}
	for _, f := range r.snap.Flows {
		now := countOf(f)
		s.flows[f.Name] = now
		moved := now.since(last[f.Name])
		h.own[0] += moved.bytes[0]
		h.own[1] += moved.bytes[1]
	}
	if r.counted {
		// Bytes in flight may be reads or writes. The kernel may also have written some of the
		// backlog before its turn. Only a limited part of the backlog counts as possibly written:
		// the kernel normally writes nothing of a large backlog by itself, and a large allowance
		// could hide the foreign bytes of a minute.
		early := min(r.snap.Backlog, r.config.Backlog)
		transit := [2]int64{int64(r.snap.Outstanding) * quantum, int64(r.snap.Outstanding)*quantum + early}
		slack := int64(r.snap.Depth+1) * quantum
		for i, done := range [2]int64{r.counters.ReadBytes, r.counters.WrittenBytes} {
			h.foreignBytes[i] += h.foreign[i].Observe(done, h.own[i], transit[i], slack)
		}
	}
	s.foreignBytes = h.foreignBytes
	h.samples = append(h.samples, s)
	if len(h.samples) > windowSamples+1 {
		h.samples = append(h.samples[:0], h.samples[1:]...)
	}
}

// window returns the activity between the oldest sample and the reading: of the device, and of each
// flow in the snapshot's order.
func (h *history) window(r reading) (status.Window, []status.FlowWindow) {
	flows := make([]status.FlowWindow, len(r.snap.Flows))
	if len(h.samples) == 0 || !r.at.After(h.samples[0].at) {
		return status.Window{}, flows
	}
	old := h.samples[0]
	elapsed := r.at.Sub(old.at)
	w := status.Window{
		Seconds: elapsed.Seconds(),
		Foreign: status.Pair{Read: h.foreignBytes[0] - old.foreignBytes[0], Written: h.foreignBytes[1] - old.foreignBytes[1]},
	}
	if r.counted && old.counted {
		w.Utilisation = monitor.Utilisation(old.counters, r.counters, elapsed)
	}
	service, weights := time.Duration(0), 0.0
	done := make([]flowCount, len(flows))
	for i, f := range r.snap.Flows {
		done[i] = countOf(f).since(old.flows[f.Name])
		flows[i].Active = done[i].service > 0 || f.Queued > 0
		service += done[i].service
		if flows[i].Active {
			weights += f.Entitled
		}
	}
	for i, f := range r.snap.Flows {
		fw := &flows[i]
		fw.Bytes = status.Pair{Read: done[i].bytes[0], Written: done[i].bytes[1]}
		fw.Waits, fw.WouldWaitNS = done[i].waits, int64(done[i].wouldWait)
		if service > 0 {
			fw.Share = float64(done[i].service) / float64(service)
		}
		if fw.Active {
			fw.Entitlement = f.Entitled / weights
		}
	}
	return w, flows
}
