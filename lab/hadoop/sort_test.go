package hadoop

import (
	"strings"
	"testing"
)

func TestCountSorted(t *testing.T) {
	counts := map[string]int64{}
	if n, err := countSorted(strings.NewReader("\t\na b\t\na b a\t\nb\t\n"), counts); err != nil || n != 6 || counts["a"] != 3 || counts["b"] != 3 {
		t.Errorf("%d words, %v, %v", n, counts, err)
	}
	if _, err := countSorted(strings.NewReader("a\t\nc\t\nb\t\n"), counts); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("a line out of order: %v", err)
	}
	want := &WordCounts{Total: 6, Words: map[string]int64{"a": 3, "b": 3}}
	for _, wrong := range []map[string]int64{{"a": 4, "b": 2}, {"a": 3, "b": 2, "c": 1}, {"a": 3}} {
		total := int64(0)
		for _, n := range wrong {
			total += n
		}
		if err := want.compare("Sort", "/out", wrong, total); err == nil {
			t.Errorf("%v was accepted", wrong)
		}
	}
}
