package scenario

import (
	"strings"
	"testing"
)

func TestPlay(t *testing.T) {
	do := func(words []string) string { return strings.Join(words[1:], "\n") }
	const text = "# a comment\n\nsay one two\n    what it said before\nsay\nsay  three\n"
	const want = "# a comment\n\nsay one two\n    one\n    two\nsay\nsay  three\n    three\n"
	if got := play(do, text); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := play(do, want); got != want {
		t.Errorf("played again\n%s", got)
	}
}

func TestWords(t *testing.T) {
	if n := Number(t, "2.5"); n != 2.5 {
		t.Error(n)
	}
	if d := Duration(t, "90s"); d.Minutes() != 1.5 {
		t.Error(d)
	}
	if v := Value([]string{"a=1", "b=2"}, "b"); v != "2" || Value(nil, "b") != "" {
		t.Error(v)
	}
}
