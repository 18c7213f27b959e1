package policy

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "kubernetes:a/b", true}, {"kubernetes:a/*", "kubernetes:a/b", true}, {"kubernetes:*", "kubernetes:a/b", true}, {"kubernetes:?/b", "kubernetes:a/b", true},
		{"kubernetes:[ab]/b", "kubernetes:a/b", true}, {"kubernetes:b/*", "kubernetes:a/b", false}, {"app", "app", true}, {"app", "app-1", false}, {"", "", true}, {"[", "[", false}, {"*", "", true},
		{"*", strings.Repeat("x", MaxValue), true}, {strings.Repeat("?", MaxValue), strings.Repeat("x", MaxValue+1), true}, {strings.Repeat("?", MaxValue+1), strings.Repeat("x", MaxValue+1), false},
	} {
		if got := Match(c.pattern, c.name); got != c.want {
			t.Errorf("%.40q, %.40q: %v", c.pattern, c.name, got)
		}
	}
}
