package node

import (
	"testing"
	"time"

	"penstock/node/device"
	"penstock/node/monitor"
	"penstock/node/status"
)

func flowSnap(name string, weight, queued int, service time.Duration, read, written int64) device.FlowSnapshot {
	return device.FlowSnapshot{Name: name, Weight: weight, Entitled: float64(weight), Queued: queued, Service: service, Bytes: [2]int64{read, written}}
}

func readingAt(second int, counters monitor.Counters, flows ...device.FlowSnapshot) reading {
	at := time.Unix(1000+int64(second), 0)
	g := &governed{config: device.Config{Backlog: 8 << 20}}
	return reading{governed: g, at: at, counters: counters, counted: true, answered: true, snap: device.Snapshot{Depth: 1, Flows: flows}}
}

func TestWindowTellsShareAndEntitlement(t *testing.T) {
	var h history
	h.add(readingAt(0, monitor.Counters{},
		flowSnap("a", 3, 0, time.Second, 0, 100), flowSnap("b", 1, 0, 0, 0, 0), flowSnap("c", 4, 0, 0, 0, 0)), 1)
	w, flows := h.window(readingAt(4, monitor.Counters{Busy: time.Second},
		flowSnap("a", 3, 0, 4*time.Second, 10, 400), // served
		flowSnap("b", 1, 0, time.Second, 0, 0),      // served
		flowSnap("c", 4, 0, 0, 0, 0),                // idle: its weight does not count
		flowSnap("d", 4, 7, 0, 0, 0)))               // new, queued and not yet served: its weight does
	if w.Seconds != 4 || w.Utilisation != 0.25 {
		t.Errorf("window %+v", w)
	}
	want := []status.FlowWindow{
		{Active: true, Share: 0.75, Entitlement: 3. / 8, Bytes: status.Pair{Read: 10, Written: 300}},
		{Active: true, Share: 0.25, Entitlement: 1. / 8},
		{},
		{Active: true, Entitlement: 4. / 8},
	}
	for i := range want {
		if flows[i] != want[i] {
			t.Errorf("flow %d: %+v, want %+v", i, flows[i], want[i])
		}
	}
}

func TestWindowForgetsWhatIsOld(t *testing.T) {
	var h history
	if w, flows := h.window(readingAt(0, monitor.Counters{}, flowSnap("a", 1, 0, time.Second, 0, 0))); w.Seconds != 0 || flows[0].Active {
		t.Errorf("before the first sample: %+v, %+v", w, flows)
	}
	for second := range 20 {
		h.add(readingAt(second, monitor.Counters{}, flowSnap("a", 1, 0, time.Second, 0, 0)), 1)
	}
	if w, _ := h.window(readingAt(19, monitor.Counters{})); w.Seconds != windowSamples {
		t.Errorf("a window of %v s", w.Seconds)
	}
	// A flow that the loop dropped and that came back has smaller counts than before.
	_, flows := h.window(readingAt(20, monitor.Counters{}, flowSnap("a", 1, 0, time.Millisecond, 5, 0)))
	if !flows[0].Active || flows[0].Share != 1 || flows[0].Bytes.Read != 5 {
		t.Errorf("%+v", flows[0])
	}
}

func TestForeignBytesOfADevice(t *testing.T) {
	const mib = 1 << 20
	var h history
	counters := func(read, written int64) monitor.Counters {
		return monitor.Counters{ReadBytes: read, WrittenBytes: written}
	}
	h.add(readingAt(0, counters(500*mib, 500*mib), flowSnap("a", 1, 0, 0, 0, 0)), mib)
	h.add(readingAt(1, counters(530*mib, 507*mib), flowSnap("a", 1, 0, 1, 20*mib, 7*mib)), mib)
	// The loop drops the flow; its bytes stay counted.
	h.add(readingAt(2, counters(530*mib, 507*mib)), mib)
	w, _ := h.window(readingAt(3, counters(0, 0)))
	if want := (status.Pair{Read: 10 * mib}); w.Foreign != want {
		t.Errorf("foreign %+v, want %+v", w.Foreign, want)
	}
	// Bytes in flight or in the backlog do not count as foreign, up to their amount.
	r := readingAt(4, counters(532*mib, 517*mib))
	r.snap.Outstanding, r.snap.Backlog = 2, 80*mib
	h.add(r, mib)
	w, _ = h.window(readingAt(5, counters(0, 0)))
	if want := (status.Pair{Read: 10 * mib}); w.Foreign != want {
		t.Errorf("foreign %+v, want %+v", w.Foreign, want)
	}
	r = readingAt(6, counters(532*mib, 527*mib))
	r.snap.Outstanding, r.snap.Backlog = 2, 80*mib
	h.add(r, mib)
	w, _ = h.window(readingAt(7, counters(0, 0)))
	if want := (status.Pair{Read: 10 * mib, Written: 10 * mib}); w.Foreign != want {
		t.Errorf("foreign bytes with a large backlog: %+v, want %+v", w.Foreign, want)
	}
}
