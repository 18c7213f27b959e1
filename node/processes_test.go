package node

import (
	"testing"
	"time"
)

func TestLookPeriod(t *testing.T) {
	const ms = time.Millisecond
	for look, want := range map[time.Duration]time.Duration{0: time.Second, 5 * ms: time.Second, 10 * ms: 2 * time.Second, 100 * ms: 5 * time.Second, 500 * ms: 10 * time.Second} {
		if got := lookPeriod(look); got != want {
			t.Errorf("%v: %v, want %v", look, got, want)
		}
	}
}
