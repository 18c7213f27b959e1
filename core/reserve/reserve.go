// Package reserve defines guaranteed rates: what a policy guarantees to an application on one device.
//
// A rate in bytes is what users ask for, but what a byte costs depends on the device: on a hard disk,
// random reads of 10 MB/s can take longer than sequential ones of 100 MB/s. So a rate can also be a part of
// the device's time, which can be guaranteed without knowing how the application reads.
package reserve

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"penstock/core/limit"
)

// Rate is a guaranteed rate. At most one of Bytes and Part is set; the zero value guarantees nothing.
type Rate struct {
	Bytes int64   `json:"bytes_per_second"` // on one device, limit.MinRate to limit.MaxRate
	Part  float64 `json:"part"`             // of the device's time, MinPart to MaxPart
	// Strict means that other flows cannot use what this one does not use of its rate.
	Strict bool `json:"strict"`
}

// Bounds of Rate.Part. MaxPart leaves time for other flows and for forced packets. It bounds one rate, not the sum of
// all.
const (
	MinPart = 0.001
	MaxPart = 0.9
)

// Validate returns an error if a rate is out of range, is given in both units, or is strict without a value.
func (r Rate) Validate() error {
	switch {
	case r.Bytes != 0 && r.Part != 0:
		return errors.New("reserve: give bytes per second or a part of the device's time, not both")
	case r.Bytes != 0 && (r.Bytes < limit.MinRate || r.Bytes > limit.MaxRate):
		return fmt.Errorf("reserve %d: use %d (1KiB) to %d bytes a second", r.Bytes, int64(limit.MinRate), int64(limit.MaxRate))
	case r.Strict && r.Bytes == 0 && r.Part == 0:
		return errors.New("strict: give a reserve that is kept free, such as reserve: 40%")
	case r.Part != 0 && !(r.Part >= MinPart && r.Part <= MaxPart):
		return fmt.Errorf("reserve %s: use %s to %s of the device's time", percent(r.Part), percent(MinPart), percent(MaxPart))
	}
	return nil
}

// Within returns an error if the rate is above a limit in bytes per second; a limit of 0 is none.
func (r Rate) Within(most int64) error {
	if most > 0 && r.Bytes > most {
		return fmt.Errorf("reserve %d is above the limit %d", r.Bytes, most)
	}
	return nil
}

// String returns the rate for people, or "" if nothing is guaranteed.
func (r Rate) String() (text string) {
	switch {
	case r.Part > 0:
		text = percent(r.Part) + " of the device's time"
	case r.Bytes > 0:
		text = fmt.Sprintf("%.1f MiB/s", float64(r.Bytes)/(1<<20))
	default:
		return ""
	}
	if r.Strict {
		text += ", strict"
	}
	return text
}

func percent(part float64) string {
	return strconv.FormatFloat(math.Round(part*1e5)/1e3, 'f', -1, 64) + " %"
}

// ParsePart parses a part such as 40% or 12.5 %; ok reports whether the text ends with a percent sign.
func ParsePart(text string) (part float64, ok bool, err error) {
	number, ok := strings.CutSuffix(strings.TrimSpace(text), "%")
	if !ok {
		return 0, false, nil
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v > 0 && v <= 100) {
		return 0, true, fmt.Errorf("%.40q: use a part of the device's time such as 40%%", text)
	}
	return v / 100, true, nil
}
