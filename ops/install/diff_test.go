package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDiffReadsAsPatchDoes(t *testing.T) {
	for _, c := range []struct {
		from, to file
		want     string
	}{
		{file{}, file{exists: true, text: []byte("a\nb")}, "--- /dev/null\n+++ bf\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"},
		{file{exists: true, text: []byte("a\n")}, file{}, "--- af\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"},
		{file{exists: true, text: []byte("1\n2\n3\n4\n5\n6\n7\n8\n9\n")}, file{exists: true, text: []byte("0\n2\n3\n4\n5\n6\n7\n8\n9\n10\n")},
			"--- af\n+++ bf\n@@ -1,4 +1,4 @@\n-1\n+0\n 2\n 3\n 4\n@@ -7,3 +7,4 @@\n 7\n 8\n 9\n+10\n"},
		{file{exists: true, text: []byte("a")}, file{exists: true, text: []byte("a\n")}, "--- af\n+++ bf\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"},
	} {
		if got := unified("f", c.from, c.to); got != c.want {
			t.Errorf("%q to %q is\n%swant\n%s", c.from.text, c.to.text, got, c.want)
		}
	}
}

// patched applies the hunks and checks that they match.
func patched(t *rapid.T, from, diff string) string {
	old, at := slices.Collect(strings.Lines(from)), 0
	var out strings.Builder
	ls := slices.Collect(strings.Lines(diff))[2:]
	for i, l := range ls {
		bare := i+1 < len(ls) && strings.HasPrefix(ls[i+1], "\\")
		body := l[1:]
		if bare {
			body = strings.TrimSuffix(body, "\n")
		}
		switch l[0] {
		case '@':
			start, count := 0, 1 // a count of 1 is left out
			if _, err := fmt.Sscanf(l, "@@ -%d,%d ", &start, &count); err != nil && start == 0 && count == 1 {
				t.Fatalf("%q: %v", l, err)
			}
			if count > 0 {
				start--
			}
			for ; at < start; at++ {
				out.WriteString(old[at])
			}
		case ' ', '-':
			if old[at] != body {
				t.Fatalf("line %d is %q, the diff says %q", at, old[at], body)
			}
			at++
			if l[0] == ' ' {
				out.WriteString(body)
			}
		case '+':
			out.WriteString(body)
		}
	}
	return out.String() + strings.Join(old[at:], "")
}

func TestDiffApplied(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([abc]?\r?\n){0,30}[abc]?`)
		from, to := text.Draw(t, "from"), text.Draw(t, "to")
		diff := unified("f", file{exists: true, text: []byte(from)}, file{exists: true, text: []byte(to)})
		if got := patched(t, from, diff); got != to {
			t.Fatalf("%q and\n%s\ngive %q, not %q", from, diff, got, to)
		}
	})
}
