package monitor

import (
	"os"
	"strings"
	"testing"
)

func TestDirtyBackground(t *testing.T) {
	page := int64(os.Getpagesize())
	for text, want := range map[string]int64{
		"nr_dirty 7\nnr_dirty_background_threshold 16384\nnr_x 1\n": 16384 * page,
		"nr_dirty_background_threshold 0\n":                         0,
		"nr_dirty_background_threshold -1\n":                        -1,
		"nr_dirty_background_threshold 9223372036854775807\n":       -1,
		"nr_dirty_background_threshold many\n":                      -1,
		"nr_dirty_threshold 5\n":                                    -1,
		"":                                                          -1,
	} {
		got, err := parseDirtyBackground(strings.NewReader(text))
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	if got, err := DirtyBackground("/proc"); err != nil || got <= 0 {
		t.Errorf("of this machine: %d, %v", got, err)
	}
	if _, err := DirtyBackground(t.TempDir()); err == nil {
		t.Error("no vmstat is no error")
	}
}
