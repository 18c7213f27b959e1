// Package settings reads YAML files that operators write, in which sizes and durations have units.
// It reads them strictly, because it is better to refuse a misspelt setting than to ignore it
// silently.
package settings

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"penstock/core/reserve"
)

// Bytes is a number of bytes, written as 65536, 64KiB, 2MiB or 1GiB.
type Bytes int64

// Duration is a duration, written as 20ms, 1s or 1m30s.
type Duration time.Duration

// UnmarshalYAML parses a number of bytes (ParseBytes).
func (b *Bytes) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return WrongValue(node, errors.New("give a number of bytes such as 65536, 64KiB or 2MiB"))
	}
	v, err := ParseBytes(node.Value)
	if err != nil {
		return WrongValue(node, err)
	}
	*b = Bytes(v)
	return nil
}

// Reserve is a guaranteed rate, written as 20MiB (bytes per second) or 40% (of the device's time).
type Reserve reserve.Rate

// Rate returns r as a reserve.Rate with the given value of Strict.
func (r Reserve) Rate(strict bool) reserve.Rate {
	v := reserve.Rate(r)
	v.Strict = strict
	return v
}

// UnmarshalYAML parses a number of bytes (ParseBytes), or a part in per cent.
func (r *Reserve) UnmarshalYAML(node *yaml.Node) error {
	part, ok, err := reserve.ParsePart(node.Value)
	if ok && node.Kind == yaml.ScalarNode {
		if err != nil {
			return WrongValue(node, err)
		}
		*r = Reserve{Part: part}
		return nil
	}
	bytes, err := ParseBytes(node.Value)
	if err != nil { // a list or a mapping has no value
		return WrongValue(node, fmt.Errorf("%w; or a part of the device's time such as 40%%", err))
	}
	*r = Reserve{Bytes: bytes}
	return nil
}

// WrongValue returns err, with the line of node, as a yaml.TypeError. The YAML library collects
// errors of this type, and continues with the next value.
func WrongValue(node *yaml.Node, err error) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %v", node.Line, err)}}
}

// ParseBytes reads a number of bytes with an optional unit KiB, MiB or GiB. An error suggests
// the unit that was probably meant.
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
	if parts := nearlyBytes.FindStringSubmatch(s); parts != nil {
		return 0, fmt.Errorf("%.40q: use a number of bytes such as %s%siB (units are KiB, MiB and GiB)", s, parts[1], strings.ToUpper(parts[2]))
	}
	return 0, fmt.Errorf("%.40q: use a number of bytes such as 65536, 64KiB or 2MiB", s)
}

// nearlyBytes matches a size with a misspelt unit: 20M, 20MB, 20 MBps, 20mb/s, 20MiB/s.
var nearlyBytes = regexp.MustCompile(`^(\d{1,12}) ?([KMGkmg])(?:[iI]?[bB]?(?:/s|ps)?)$`)

// UnmarshalYAML parses a duration. Negative durations are errors.
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return WrongValue(node, errors.New("give a duration with a unit, such as 20ms, 1s or 1m30s"))
	}
	v, err := time.ParseDuration(node.Value)
	if err != nil || v < 0 {
		return WrongValue(node, fmt.Errorf("%.40q: use a duration with a unit, such as 20ms, 1s or 1m30s", node.Value))
	}
	*d = Duration(v)
	return nil
}
