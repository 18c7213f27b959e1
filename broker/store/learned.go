package store

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"penstock/core/forecast"
	"penstock/wire/jsonstream"
)

// Limits of the record of what forecasts have learned.
const (
	// MaxLearned is the maximum size of a record, in bytes. ZooKeeper accepts messages of up to 1 MiB.
	MaxLearned = 512 << 10
	// maxLearnedText is the maximum size of a record that is not compressed, in bytes.
	maxLearnedText = 32 << 20
)

// ErrNewer means that a newer version of this program has written a record.
var ErrNewer = errors.New("a newer version of Penstock has written it")

// learnedMagic begins each record, followed by its version and the checksum of all bytes after the first line.
const (
	learnedMagic   = "penstock-forecasts "
	learnedVersion = 1
)

// learned is the JSON of a record, last used first.
type learned struct {
	Kinds []learnedKind `json:"kinds"`
}

type learnedKind struct {
	Framework string `json:"framework"`
	User      string `json:"user"`
	Name      string `json:"name"`
	forecast.Values
}

// EncodeLearned encodes what forecasts have learned, last used first, in at most MaxLearned bytes. kept is the number of
// entries for which there was room.
func EncodeLearned(all []forecast.Entry) (record []byte, kept int, err error) {
	kinds := make([]learnedKind, 0, min(len(all), forecast.MaxKinds))
	for _, e := range all[:min(len(all), forecast.MaxKinds)] {
		kinds = append(kinds, learnedKind{e.Kind.Framework, e.Kind.User, e.Kind.Name, e.Curve.Values()})
	}
	for {
		if record, err = encodeLearned(kinds); err != nil || len(record) <= MaxLearned {
			return record, len(kinds), err
		}
		// Entries have about the same size. A twentieth less than would fit makes another attempt unlikely.
		kinds = kinds[:len(kinds)*MaxLearned/len(record)*19/20]
	}
}

func encodeLearned(kinds []learnedKind) ([]byte, error) {
	text, err := json.Marshal(learned{kinds})
	if err != nil {
		return nil, err
	}
	body, err := gzipped(string(text))
	if err != nil {
		return nil, err
	}
	return append(learnedHeader(body), body...), nil
}

func gzipped(text string) ([]byte, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := io.WriteString(w, text)
	err = errors.Join(err, w.Close())
	return packed.Bytes(), err
}

func learnedHeader(body []byte) []byte {
	sum := sha256.Sum256(body)
	return fmt.Appendf(nil, "%s%d %s\n", learnedMagic, learnedVersion, hex.EncodeToString(sum[:]))
}

// DecodeLearned decodes what EncodeLearned returned. It fails with ErrNewer for a record of a newer version of this program,
// and with another error for anything else. skipped counts entries that this program cannot use.
func DecodeLearned(record []byte) (all []forecast.Entry, skipped int, err error) {
	first, body, found := bytes.Cut(record[:min(len(record), MaxLearned)], []byte("\n"))
	words := bytes.Fields(bytes.TrimPrefix(first, []byte(learnedMagic)))
	if !found || !bytes.HasPrefix(first, []byte(learnedMagic)) || len(words) == 0 {
		return nil, 0, errors.New("not a record of what forecasts have learned")
	}
	if version, err := strconv.ParseUint(string(words[0]), 10, 32); err == nil && version > learnedVersion {
		return nil, 0, ErrNewer
	}
	if len(record) > MaxLearned {
		return nil, 0, fmt.Errorf("it has %d bytes; at most %d are possible", len(record), MaxLearned)
	}
	if !bytes.Equal(record[:len(first)+1], learnedHeader(body)) {
		return nil, 0, errors.New("wrong checksum: it is incomplete or was changed")
	}
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	d := json.NewDecoder(&jsonstream.Capped{R: r, Left: maxLearnedText})
	kind := func() error {
		if len(all)+skipped >= forecast.MaxKinds {
			return fmt.Errorf("it has more than %d entries", forecast.MaxKinds)
		}
		var k learnedKind
		if err := d.Decode(&k); err != nil {
			return err
		}
		if e, err := forecast.NewEntry(forecast.Kind{Framework: k.Framework, User: k.User, Name: k.Name}, k.Values); err == nil {
			all = append(all, e)
		} else {
			skipped++
		}
		return nil
	}
	if err := jsonstream.Object(d, func(name string) (read bool, err error) {
		if name != "kinds" {
			return false, nil
		}
		return true, jsonstream.Array(d, kind)
	}); err != nil {
		return nil, 0, fmt.Errorf("its text: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // also the checksum of the compressed text
		return nil, 0, fmt.Errorf("its text goes on after its end: %w", cmp.Or(err, errors.New("more values")))
	}
	return all, skipped, nil
}
