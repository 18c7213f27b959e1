package soak

import (
	"testing"

	"penstock/lab/hadoop"
)

func TestSetupsAreBounded(t *testing.T) {
	cases := []struct {
		name   string
		change func(*Setup)
		good   bool
	}{
		{"the default", func(*Setup) {}, true},
		{"no kill", func(s *Setup) { s.Kills = 0 }, false},
		{"the most kills", func(s *Setup) { s.Kills = 100_000 }, true},
		{"more", func(s *Setup) { s.Kills = 100_001 }, false},
		{"one row", func(s *Setup) { s.TeraBytes = hadoop.RowBytes }, true},
		{"less than a row", func(s *Setup) { s.TeraBytes = hadoop.RowBytes - 1 }, false},
		{"no TestDFSIO", func(s *Setup) { s.DFSIOBytes = 0 }, true},
		{"less than none", func(s *Setup) { s.DFSIOBytes = -1 }, false},
		{"no task", func(s *Setup) { s.Tasks = 0 }, false},
		{"the slowest disk", func(s *Setup) { s.Disk.BytesPerSecond = slower * 4096 }, true},
		{"a slower one", func(s *Setup) { s.Disk.BytesPerSecond = slower*4096 - 1 }, false},
		{"another Hadoop", func(s *Setup) { s.Hadoop = "3.5.0" }, true},
		{"one that is not there", func(s *Setup) { s.Hadoop = "1.0" }, false},
	}
	for _, c := range cases {
		s := DefaultSetup(1, 300)
		c.change(&s)
		if err := s.Validate(); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
