package coord_test

import (
	"testing"
	"time"

	"penstock/core/coord"
)

// However much service is recorded at once, a device reports at most a second of it per second, divided as it was recorded.
func TestServiceInBulk(t *testing.T) {
	var d coord.Device
	out := d.Report(1, time.Second, []coord.Use{
		{App: 0, Served: 120 * time.Second, Wanted: time.Second},
		{App: 1, Served: 40 * time.Second},
	})
	if a, b := out[0].Rate, out[1].Rate; a != coord.Second*3/4 || b != coord.Second/4 {
		t.Errorf("the reported rates are %.3f and %.3f, want 0.75 and 0.25", float64(a)/coord.Second, float64(b)/coord.Second)
	}
}
