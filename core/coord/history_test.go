package coord

import (
	"testing"
	"time"
)

func TestHistory(t *testing.T) {
	const rate = 100 * mib
	for name, test := range map[string]struct {
		reached      int64
		hungry       bool
		kept, broken int
	}{
		"kept":                 {rate, true, 4, 0},
		"nearly kept":          {rate * 96 / 100, true, 4, 0},
		"broken":               {rate * 94 / 100, true, 0, 4},
		"it wants less":        {rate / 2, false, 0, 0},
		"more than guaranteed": {rate * 2, false, 4, 0},
	} {
		var h History
		for now := time.Duration(0); now <= 4*HistoryWindow; now += time.Second {
			h.Note(now, rate, test.reached, test.hungry)
		}
		if h.Kept != test.kept || h.Broken != test.broken || len(h.Last) != test.kept+test.broken {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	var h History
	for now := time.Duration(0); now <= 100*HistoryWindow; now += time.Second {
		h.Note(now, mib, int64(now/time.Second), true)
	}
	if len(h.Last) != maxWindows || h.Kept+h.Broken != 100 {
		t.Fatalf("%d windows in memory, %d counted", len(h.Last), h.Kept+h.Broken)
	}
	if newest := h.Last[maxWindows-1]; newest < 2900 || newest > 3000 {
		t.Errorf("the newest window has %d", newest)
	}
}

// TestAGapCountsForNothing: a broker that was suspended, or a clock that goes back, makes no window.
func TestAGapCountsForNothing(t *testing.T) {
	var h History
	h.Note(0, mib, 0, true)
	h.Note(29*time.Second, mib, 0, true)
	h.Note(90*time.Second, mib, 0, true)
	h.Note(10*time.Second, mib, 0, true)
	h.Note(39*time.Second, mib, 0, true)
	if h.Kept+h.Broken > 0 {
		t.Errorf("%+v", h)
	}
	h.Note(40*time.Second, mib, 0, true)
	if h.Broken != 1 {
		t.Errorf("%+v", h)
	}
}
