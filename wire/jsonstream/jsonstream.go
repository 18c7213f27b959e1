// Package jsonstream reads long JSON documents of other servers piece by piece.
//
// Problem: an answer of a cluster manager may have tens of megabytes, of which a few fields are needed, and
// it may be wrong or hostile. Choice: the standard library's decoder, one member or element at a time, so
// that the reader can stop at any bound. Values that nobody wants are skipped.
package jsonstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrTooLong means that a document is longer than its reader accepts.
var ErrTooLong = errors.New("the answer is too long")

// Capped fails with ErrTooLong after Left bytes, where io.LimitReader would report the end of the input.
type Capped struct {
	R    io.Reader
	Left int64
}

// Read implements io.Reader.
func (b *Capped) Read(p []byte) (int, error) {
	if b.Left <= 0 {
		return 0, ErrTooLong
	}
	n, err := b.R.Read(p[:min(int64(len(p)), b.Left)])
	b.Left -= int64(n)
	return n, err
}

// Object reads an object and calls member for each name. It skips a value that member did not
// read.
func Object(d *json.Decoder, member func(name string) (read bool, err error)) error {
	t, err := d.Token()
	switch {
	case err != nil:
		return err
	case t == nil || t == "": // null, or an empty object as some serializers write it
		return nil
	case t != json.Delim('{'):
		return fmt.Errorf("%.40q, expected an object", fmt.Sprint(t))
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		read, err := member(name)
		if err != nil {
			return err
		}
		if !read {
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return err
			}
		}
	}
	_, err = d.Token()
	return err
}

// Array reads an array and calls element for each element.
func Array(d *json.Decoder, element func() error) error {
	t, err := d.Token()
	switch {
	case err != nil:
		return err
	case t == nil:
		return nil
	case t != json.Delim('['):
		return fmt.Errorf("%.40q, expected a list", fmt.Sprint(t))
	}
	for d.More() {
		if err := element(); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// Clip returns a copy of the beginning of a string, as valid UTF-8. most is in bytes.
func Clip(s string, most int) string {
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), most)], ""))
}
