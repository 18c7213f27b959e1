package jsonstream

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestCappedFailsBeyondTheBound(t *testing.T) {
	for left, want := range map[int64]error{4: ErrTooLong, 5: ErrTooLong, 6: nil} {
		// Reading to the end takes one more read than there are bytes.
		_, err := io.ReadAll(&Capped{R: strings.NewReader("12345"), Left: left})
		if !errors.Is(err, want) {
			t.Errorf("5 bytes with %d left: %v, want %v", left, err, want)
		}
	}
}

func TestMembersAndElements(t *testing.T) {
	var numbers []int
	read := func(text string) error {
		numbers = nil
		d := json.NewDecoder(strings.NewReader(text))
		return Object(d, func(name string) (bool, error) {
			if name != "list" {
				return false, nil
			}
			return true, Array(d, func() error {
				var n int
				err := d.Decode(&n)
				numbers = append(numbers, n)
				return err
			})
		})
	}
	for text, want := range map[string][]int{
		`{"skipped":{"list":[9]},"list":[1,2],"x":[[3]]}`: {1, 2},
		`{"list":null}`: nil, `null`: nil, `""`: nil, `{}`: nil,
	} {
		if err := read(text); err != nil || !slices.Equal(numbers, want) {
			t.Errorf("%s: %v, %v", text, numbers, err)
		}
	}
	for _, text := range []string{"", "[", `{"list":{}}`, `{"list":[1`, `{"a":1`, `7`, `{"list":["x"]}`} {
		if err := read(text); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func TestClip(t *testing.T) {
	for s, want := range map[string]string{"": "", "abc": "abc", "abcd": "abc", "ab\xc3\xa4": "ab"} {
		if got := Clip(s, 3); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
