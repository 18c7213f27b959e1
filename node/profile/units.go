package profile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Duration is written 20ms or 1.5s in the file, and in nanoseconds in JSON.
type Duration time.Duration

// MarshalYAML writes the duration in Go's notation, such as 1.5s.
func (d Duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// UnmarshalYAML takes the value from its text.
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	v, err := time.ParseDuration(node.Value)
	if err != nil || v < 0 {
		return fmt.Errorf("line %d: %q: use a duration such as 20ms", node.Line, node.Value)
	}
	*d = Duration(v)
	return nil
}

// Bytes is written 64KiB or 2MiB in the file, and as a number in JSON.
type Bytes int64

// String writes the size in the largest unit that divides it.
func (b Bytes) String() string {
	switch {
	case b >= 1<<20 && b%(1<<20) == 0:
		return strconv.FormatInt(int64(b)>>20, 10) + "MiB"
	case b >= 1<<10 && b%(1<<10) == 0:
		return strconv.FormatInt(int64(b)>>10, 10) + "KiB"
	}
	return strconv.FormatInt(int64(b), 10)
}

// MarshalYAML writes the size with a unit, as String does.
func (b Bytes) MarshalYAML() (any, error) { return b.String(), nil }

// UnmarshalYAML takes the value from its text.
func (b *Bytes) UnmarshalYAML(node *yaml.Node) error {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"", 1}} {
		digits, ok := strings.CutSuffix(node.Value, u.name)
		if !ok {
			continue
		}
		if v, err := strconv.ParseInt(digits, 10, 64); err == nil && v >= 0 && v <= QuantumMax {
			*b = Bytes(v * u.bytes)
			return nil
		}
		break
	}
	return fmt.Errorf("line %d: %q: use a number of bytes such as 512KiB or 2MiB", node.Line, node.Value)
}
