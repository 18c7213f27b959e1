package monitor

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// InFlight returns the requests of all processes that are at a device or in its queue now, reads and
// writes.
func InFlight(sysfs, name string) (reading, writing int64, err error) {
	text, err := readSmall(filepath.Join(sysfs, "block", name, "inflight"))
	if err == nil {
		reading, writing, err = parseInFlight(text)
	}
	if err != nil {
		err = fmt.Errorf("requests in flight of device %s: %w", name, err)
	}
	return reading, writing, err
}

// parseInFlight reads the text of an inflight file: two numbers.
func parseInFlight(text string) (reading, writing int64, err error) {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return 0, 0, fmt.Errorf("%d fields, want 2", len(fields))
	}
	for i, to := range []*int64{&reading, &writing} {
		n, err := strconv.ParseUint(fields[i], 10, 31)
		if err != nil {
			return 0, 0, fmt.Errorf("field %d: %w", i+1, err)
		}
		*to = int64(n)
	}
	return reading, writing, nil
}
