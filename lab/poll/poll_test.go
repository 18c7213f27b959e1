package poll

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	bad := errors.New("bad")
	for name, test := range map[string]struct {
		answers []error // nil: not done yet
		want    error
	}{
		"at once": {nil, nil}, "the third time": {[]error{nil, nil}, nil}, "an error": {[]error{nil, bad}, bad},
	} {
		asked := 0
		err := Until(t.Context(), time.Millisecond, func() (bool, error) {
			asked++
			if asked > len(test.answers) {
				return true, nil
			}
			return false, test.answers[asked-1]
		})
		if !errors.Is(err, test.want) || asked < len(test.answers) {
			t.Errorf("%s: %v after %d questions, want %v", name, err, asked, test.want)
		}
	}
}

func TestUntilTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	err := Until(ctx, time.Hour, func() (bool, error) {
		asked++
		cancel()
		return false, nil
	})
	if !errors.Is(err, context.Canceled) || asked != 1 {
		t.Errorf("%v after %d questions", err, asked)
	}
}
