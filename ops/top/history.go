package top

import (
	"strings"
	"time"
)

// minute is the time that the sparklines show.
const minute = time.Minute

// History keeps each application's shares of the last minute. Its size is bounded, because the
// daemon bounds each document and a minute has a limited number of them.
type History struct {
	moments []moment
}

type moment struct {
	at     time.Time
	shares map[string]float64
}

// Add adds the shares of a document. Documents must come in the order of their times.
func (h *History) Add(at time.Time, all []Application) {
	if n := len(h.moments); n > 0 && !at.After(h.moments[n-1].at) {
		return
	}
	m := moment{at, map[string]float64{}}
	for _, a := range all {
		m.shares[a.Name] = a.Share
	}
	h.moments = append(h.moments, m)
	for at.Sub(h.moments[0].at) > minute {
		h.moments = h.moments[1:]
	}
}

// Sparkline draws an application's share over the last minute, the newest on the right. Each
// character stands for a part of the minute and shows the mean of its shares; it is blank if no
// document arrived in that part.
func (h *History) Sparkline(name string, width int) string {
	blocks := []rune(" ▁▂▃▄▅▆▇█")
	if h == nil || len(h.moments) == 0 {
		return ""
	}
	sums, counts := make([]float64, width), make([]int, width)
	now := h.moments[len(h.moments)-1].at
	for _, m := range h.moments {
		i := width - 1 - int(now.Sub(m.at)*time.Duration(width)/(minute+1))
		sums[i] += m.shares[name]
		counts[i]++
	}
	var b strings.Builder
	for i := range sums {
		level := 0
		if counts[i] > 0 {
			share := min(1, sums[i]/float64(counts[i]))
			level = int(share*float64(len(blocks)-1) + 0.5)
			if share > 0 {
				level = max(level, 1)
			}
		}
		b.WriteRune(blocks[level])
	}
	return b.String()
}
