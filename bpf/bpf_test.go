package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// TestGeneratedFromThisSource checks that the committed objects were compiled from this source. It
// needs no compiler, because `make generate` records the checksum of the source.
func TestGeneratedFromThisSource(t *testing.T) {
	sum := sha256.New()
	for _, name := range []string{"kernel.h", "blockio.c", "sockets.h", "socketjoin.c", "bpf.go"} {
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
	for _, program := range []struct {
		load func() (*ebpf.CollectionSpec, error)
		want map[string]uint32
	}{
		{LoadBlockio, map[string]uint32{"governed": 256, "users": 4096, "bios": 16384, "issued": 16384, "latencies": 1024, "other_latencies": 256}},
		{LoadSocketjoin, map[string]uint32{"ports": 1024, "here": 4096, "pending": 4096, "sockets": 65536, "connections": 32768, "orders": 32768}},
	} {
		spec, err := program.load()
		if err != nil {
			t.Fatal(err)
		}
		for name, entries := range program.want {
			if m := spec.Maps[name]; m == nil || m.MaxEntries != entries {
				t.Errorf("map %s: %v, want %d entries", name, m, entries)
			}
		}
	}
}
