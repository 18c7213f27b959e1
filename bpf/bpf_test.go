package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// TestGeneratedFromThisSource checks that the committed objects were compiled from this source. It
// needs no compiler, because `make generate` records the checksum of the source.
func TestGeneratedFromThisSource(t *testing.T) {
	sum := sha256.New()
	for _, name := range []string{"kernel.h", "blockio.c", "bpf.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	noted, err := os.ReadFile("source.sum")
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.HasPrefix(string(noted), got) {
		t.Error("the C source has changed since its objects were compiled: run make generate (needs clang-14) and commit what it writes")
	}
}

// TestBounds checks the sizes of the maps, which the documents name.
func TestBounds(t *testing.T) {
	spec, err := LoadBlockio()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint32{"governed": 256, "users": 4096, "bios": 16384, "issued": 16384, "latencies": 1024, "other_latencies": 256}
	for name, entries := range want {
		if m := spec.Maps[name]; m == nil || m.MaxEntries != entries {
			t.Errorf("map %s: %v, want %d entries", name, m, entries)
		}
	}
}
