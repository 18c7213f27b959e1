package profileplot

import (
	"strings"
	"testing"
	"time"

	"penstock/node/profile"
	"penstock/ops/measure"
)

func TestPlot(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		r := &measure.Result{Profile: &profile.Profile{}}
		if !readOnly {
			r.Profile.Cost.Write = &profile.Coefficients{}
		}
		for _, write := range []bool{false, true} {
			if write && readOnly {
				continue
			}
			for _, size := range measure.Sizes {
				for _, n := range measure.Ladder {
					r.Points = append(r.Points, measure.Point{Load: measure.Load{Write: write, Bytes: size, Concurrency: n},
						BytesPerSecond: 1e6 * float64(n), Latency: time.Millisecond * time.Duration(n), Saturated: n == 4})
				}
			}
		}
		svg, err := Plot(r)
		if err != nil {
			t.Fatal(err)
		}
		if drawn := strings.Contains(string(svg), "random writes"); drawn == readOnly || !strings.Contains(string(svg), "4096 KiB") {
			t.Errorf("read-only %v: writes drawn %v", readOnly, drawn)
		}
	}
}
