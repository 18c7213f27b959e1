package recent

import "testing"

func TestTheLeastRecentlyUsedGoes(t *testing.T) {
	m := New[string, int](2)
	*m.Get("a")++
	*m.Get("b")++
	*m.Get("a")++
	*m.Get("c")++ // b goes
	if m.Len() != 2 || *m.Get("a") != 2 || *m.Get("c") != 1 {
		t.Errorf("%d entries, a %d, c %d", m.Len(), *m.Get("a"), *m.Get("c"))
	}
	if *m.Get("b") != 0 || m.Len() != 2 {
		t.Error("an entry past the bound is kept")
	}
}
