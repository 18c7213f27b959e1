package client

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"
)

// With seed 0, Fill computes the published first numbers of SplitMix64.
func TestFillIsSplitMix64(t *testing.T) {
	buf := make([]byte, 24)
	Fill(buf, 0, 0)
	for i, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		if got := binary.LittleEndian.Uint64(buf[8*i:]); got != want {
			t.Errorf("number %d is %#x, want %#x", i, got, want)
		}
	}
}

func TestAnyPartOfAFileIsTheSameByItself(t *testing.T) {
	whole := make([]byte, 1024)
	Fill(whole, 42, 0)
	for _, pos := range []int64{8, 64, 1016} {
		part := make([]byte, len(whole)-int(pos))
		Fill(part, 42, pos)
		if !bytes.Equal(part, whole[pos:]) {
			t.Errorf("the bytes from %d on differ", pos)
		}
	}
	if Sum(42, 1<<16) == Sum(43, 1<<16) || Sum(42, 1<<16) == Sum(42, 1<<16+8) {
		t.Error("two files, one sum")
	}
}

func TestAnEndedJVMFailsWhatIsAsked(t *testing.T) {
	c := &JVM{ended: true, running: map[int]Take{}}
	var got string
	c.Do("get", "path=/x", func(event, value string) { got = event + " " + value })
	if got != "error the clients' JVM has ended" {
		t.Errorf("got %q", got)
	}
}

func TestTimed(t *testing.T) {
	begin, took, err := Timed("1700000000000000 2500000")
	if err != nil || took != 2500*time.Microsecond || begin.UnixMicro() != 1700000000000000 {
		t.Errorf("%v, %v, %v", begin, took, err)
	}
	for _, bad := range []string{"", "1", "x 1", "1 x", "1 -1"} {
		if _, _, err := Timed(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
