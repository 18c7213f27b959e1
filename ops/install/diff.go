package install

import (
	"fmt"

	"github.com/aymanbagabas/go-udiff"
)

// unified returns the change of a file as a unified diff that patch(1) reads.
func unified(path string, from, to file) string {
	name := func(prefix string, f file) string {
		if !f.exists {
			return "/dev/null"
		}
		return prefix + path
	}
	old, new := name("a", from), name("b", to)
	if diff := udiff.Unified(old, new, string(from.text), string(to.text)); diff != "" {
		return diff
	}
	return fmt.Sprintf("--- %s\n+++ %s\n", old, new) // an empty file is made or removed
}
