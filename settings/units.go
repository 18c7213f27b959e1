// Package settings reads YAML files that operators write: strictly, since a misspelt
// setting that is silently ignored is worse than one that is refused, and with units.
package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Bytes reads 65536, 64KiB, 2MiB or 1GiB.
type Bytes int64

// Duration reads 20ms, 1s or 1m30s.
type Duration time.Duration

// UnmarshalYAML takes the value from its text.
func (b *Bytes) UnmarshalYAML(node *yaml.Node) error {
	v, err := ParseBytes(node.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", node.Line, err)
	}
	*b = Bytes(v)
	return nil
}

// ParseBytes reads a number of bytes with an optional unit KiB, MiB or GiB.
func ParseBytes(s string) (int64, error) {
	units := []struct {
		name  string
		bytes int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || v < 0 || v > 1<<62/u.bytes {
			break
		}
		return v * u.bytes, nil
	}
	return 0, fmt.Errorf("%q: use a number of bytes such as 65536, 64KiB or 2MiB", s)
}

// UnmarshalYAML takes the value from its text.
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	v, err := time.ParseDuration(node.Value)
	if err != nil || v < 0 {
		return fmt.Errorf("line %d: %q: use a duration such as 20ms or 1s", node.Line, node.Value)
	}
	*d = Duration(v)
	return nil
}
