package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Limits of a version, and of the number of versions.
const (
	Keep       = 1000    // versions; older ones are dropped
	MaxText    = 1 << 20 // bytes of the policy
	MaxWeights = 10_000  // single applications
	MaxWeight  = 1_000_000
	MaxName    = 256      // bytes of an application's or author's name
	MaxNote    = 1 << 10  // bytes
	maxRecord  = 32 << 20 // bytes of an encoded version; enough for one that reaches all limits
)

// Check checks a version against the limits.
func (v Version) Check() error {
	switch {
	case v.Number == 0:
		return errors.New("a version's number must be at least 1")
	case max(len(v.Text), len(v.Canary.Text)) > MaxText:
		return fmt.Errorf("the policy has %d bytes; at most %d are allowed", max(len(v.Text), len(v.Canary.Text)), MaxText)
	case v.Canary.Percent < 0 || v.Canary.Percent > 99 || (v.Canary.Percent == 0) != (len(v.Canary.Text) == 0):
		return fmt.Errorf("a canary of %d %% of the nodes with a policy of %d bytes: use 1 to 99 %%", v.Canary.Percent, len(v.Canary.Text))
	case !utf8.Valid(v.Text) || !utf8.Valid(v.Canary.Text):
		return errors.New("the policy is not UTF-8")
	case len(v.Weights) > MaxWeights:
		return fmt.Errorf("%d applications have a weight set; at most %d are allowed: remove some", len(v.Weights), MaxWeights)
	case len(v.Author) > MaxName || !utf8.ValidString(v.Author):
		return fmt.Errorf("the author's name must be at most %d bytes of UTF-8", MaxName)
	case len(v.Note) > MaxNote || !utf8.ValidString(v.Note):
		return fmt.Errorf("the note must be at most %d bytes of UTF-8", MaxNote)
	}
	for name, weight := range v.Weights {
		if name == "" || len(name) > MaxName || !utf8.ValidString(name) {
			return fmt.Errorf("an application's name must be 1 to %d bytes of UTF-8", MaxName)
		}
		if weight < 1 || weight > MaxWeight {
			return fmt.Errorf("weight %d of %s: use 1 to %d", weight, name, MaxWeight)
		}
	}
	return nil
}

// magic begins each encoded version. The rest of the first line is the checksum of all bytes after
// that line.
const magic = "penstock-policy-version 1 "

// record is the JSON of a version. The policy is a string in it, so that people can read the file.
type record struct {
	Number  uint64         `json:"number"`
	Author  string         `json:"author,omitempty"`
	Note    string         `json:"note,omitempty"`
	UnixMS  int64          `json:"unix_ms"`
	Weights map[string]int `json:"weights,omitempty"`
	Off     bool           `json:"off,omitempty"`
	Canary  *canaryRecord  `json:"canary,omitempty"`
	Text    string         `json:"text"`
}

type canaryRecord struct {
	Percent int    `json:"percent"`
	Text    string `json:"text"`
}

// Encode encodes a version with a checksum. Times are kept to the millisecond.
func Encode(v Version) ([]byte, error) {
	if err := v.Check(); err != nil {
		return nil, err
	}
	r := record{Number: v.Number, Author: v.Author, Note: v.Note, UnixMS: v.Time.UnixMilli(), Weights: v.Weights, Off: v.Off, Text: string(v.Text)}
	if v.Canary.Percent > 0 {
		r.Canary = &canaryRecord{v.Canary.Percent, string(v.Canary.Text)}
	}
	body, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, err
	}
	return append(header(body), body...), nil
}

func header(body []byte) []byte {
	sum := sha256.Sum256(body)
	return []byte(magic + hex.EncodeToString(sum[:]) + "\n")
}

// Decode decodes what Encode returned, and fails for anything else: a part of it, additional bytes,
// or changed ones.
func Decode(text []byte) (Version, error) {
	if len(text) > maxRecord {
		return Version{}, fmt.Errorf("a version has at most %d bytes", maxRecord)
	}
	first, body, found := bytes.Cut(text, []byte("\n"))
	if !found || !bytes.HasPrefix(first, []byte(magic)) {
		return Version{}, errors.New("not a complete version of a policy")
	}
	if !bytes.Equal(text[:len(first)+1], header(body)) {
		return Version{}, errors.New("wrong checksum: the version is incomplete or was changed")
	}
	var r record
	if err := json.Unmarshal(body, &r); err != nil {
		return Version{}, err
	}
	v := Version{Number: r.Number, Author: r.Author, Note: r.Note, Time: unixMilli(r.UnixMS), Weights: r.Weights, Off: r.Off, Text: []byte(r.Text)}
	if r.Canary != nil {
		v.Canary = Canary{r.Canary.Percent, []byte(r.Canary.Text)}
	}
	return v, v.Check()
}
