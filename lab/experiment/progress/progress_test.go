package progress

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestLog(t *testing.T) {
	for every, want := range map[time.Duration]string{
		0:                "00:00  start 1\n00:10  working\n00:20  working\n00:25  end\n",
		20 * time.Second: "00:00  start 1\n00:20  working\n00:25  end\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			l := &Log{Out: &out, Every: every}
			l.Printf("start %d", 1)
			for range 25 {
				time.Sleep(time.Second)
				l.Live(func() string { return "working" })
			}
			l.Printf("end")
			if out.String() != want {
				t.Errorf("%q, want %q", &out, want)
			}
		})
	}
}

func TestTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &Log{Out: &out, Terminal: true}
		l.Live(func() string { return "a" })
		l.Live(func() string { return "too early" })
		time.Sleep(time.Second)
		l.Live(func() string { return "b" })
		l.Printf("end")
		l.Printf("after")
		if want := "\r\x1b[K00:00  a\r\x1b[K00:01  b\r\x1b[K00:01  end\n00:01  after\n"; out.String() != want {
			t.Errorf("%q, want %q", &out, want)
		}
	})
}

func TestNilLogIsSilent(t *testing.T) {
	var l *Log
	l.Printf("nothing")
	l.Live(func() string { t.Error("the live line was made"); return "" })
	if l.Elapsed() != 0 {
		t.Error("a nil log has a clock")
	}
}

func TestClock(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "00:00", 65 * time.Second: "01:05", 3661 * time.Second: "1:01:01"} {
		if got := Clock(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
