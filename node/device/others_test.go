package device

import (
	"testing"
	"time"

	"penstock/core/cost"
)

// The device counts the requests that a quantum becomes as they end, the loop the
// quantum as a whole: a load that begins, goes on and ends is nobody else's.
func TestWhatIsInFlightIsNoOthers(t *testing.T) {
	line := cost.Line{Fixed: 10 * time.Millisecond, PerMiB: 80 * time.Millisecond}
	model := cost.Model{Read: cost.Coefficients{Random: line, Sequential: line}, Write: cost.Coefficients{Random: line, Sequential: line}}
	second := func(o *others, device, own, flying *Counters, moves, foreign int64) float64 {
		const quantum, part = 2 * mib, mib
		for range moves / part { // half a quantum at a time
			device.add(true, part)
			if flying.Bytes[1] == 0 {
				flying.add(true, 2*quantum)
			}
			if device.Bytes[1]%quantum == 0 {
				own.add(true, quantum)
			}
		}
		for range foreign / (64 << 10) {
			device.Requests[0]++
			device.Bytes[0] += 64 << 10
		}
		_, part64 := o.cost(model, *device, *own, *flying, model.Of(true, true, moves))
		return part64
	}
	var o others
	var device, own, flying Counters
	second(&o, &device, &own, &flying, 0, 0)
	for i, moves := range []int64{9 * mib, 12 * mib, 11 * mib, 13 * mib, 12 * mib, 11 * mib, 4 * mib} {
		if part := second(&o, &device, &own, &flying, moves, 0); part != 0 {
			t.Errorf("second %d: %.2f of the device are said to be others'", i, part)
		}
	}
	var part float64
	for range 10 {
		part = second(&o, &device, &own, &flying, 6*mib, 3*mib)
	}
	if part < 0.4 || part > 0.75 {
		t.Errorf("others read 3 MiB/s in small requests beside 6 MiB/s: %.2f of the device", part)
	}
}
