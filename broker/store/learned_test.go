package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/core/forecast"
)

// entries returns what was learned from random runs of as many kinds, of several users.
func entries(t testing.TB, n int) []forecast.Entry {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var h forecast.History
	for i := range n {
		k, _ := forecast.KindOf("MAPREDUCE", fmt.Sprint("user", i/forecast.MaxKindsOfUser), fmt.Sprintf("job %c%c", 'a'+i%26, 'a'+i/26%26)+strings.Repeat("x", i/676))
		var trace forecast.Trace
		o := forecast.Observation{Share: 0.5}
		for o.Progress < 1 {
			trace.Observe(o)
			o.Time += time.Duration(random.Int64N(1e10) + 1e9)
			o.Progress += 0.03 * random.Float64()
			o.Service += random.Float64()
		}
		if !h.Learn(k, &trace, o.Time) {
			t.Fatal("nothing is learned")
		}
	}
	if h.Len() != n {
		t.Fatalf("%d kinds instead of %d", h.Len(), n)
	}
	return h.Entries()
}

func TestLearned(t *testing.T) {
	for _, n := range []int{0, 1, 20, forecast.MaxKinds} {
		all := entries(t, n)
		record, kept, err := EncodeLearned(all)
		if err != nil || len(record) > MaxLearned || kept > n {
			t.Fatalf("%d bytes, %d of %d kept, %v", len(record), kept, n, err)
		}
		t.Logf("%d kinds: %d bytes for %d of them", n, len(record), kept)
		got, skipped, err := DecodeLearned(record)
		if err != nil || skipped != 0 || len(got) != kept || n <= 20 && kept != n || kept < n/4 {
			t.Fatalf("%d of %d, %d skipped, %v", len(got), kept, skipped, err)
		}
		for i, e := range got { // those that were used last
			if e.Kind != all[i].Kind || e.Curve.Runs() != 1 || !slices.Equal(e.Curve.Values().C, all[i].Curve.Values().C) {
				t.Errorf("%+v instead of %+v", e.Kind, all[i].Kind)
			}
		}
	}
}

// TestLearnedFromElsewhere: a record that is damaged anywhere, or newer, is refused. Of a whole one, only what this program cannot
// use is left out.
func TestLearnedFromElsewhere(t *testing.T) {
	record, _, err := EncodeLearned(entries(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	for i := range record {
		if _, _, err := DecodeLearned(record[:i]); err == nil {
			t.Fatalf("the first %d bytes are accepted", i)
		}
		changed := bytes.Clone(record)
		changed[i] ^= 1
		if _, _, err := DecodeLearned(changed); err == nil {
			t.Fatalf("a change of byte %d is accepted", i)
		}
	}
	if _, _, err := DecodeLearned(append(bytes.Clone(record), 0)); err == nil {
		t.Error("an additional byte is accepted")
	}
	for _, newer := range []string{"penstock-forecasts 2 x\nanything", "penstock-forecasts 17\n" + strings.Repeat("x", MaxLearned)} {
		if _, _, err := DecodeLearned([]byte(newer)); !errors.Is(err, ErrNewer) {
			t.Errorf("%.30q: %v", newer, err)
		}
	}
	if _, _, err := DecodeLearned(append(bytes.Clone(record), make([]byte, MaxLearned)...)); err == nil || errors.Is(err, ErrNewer) {
		t.Errorf("a record that is too long: %v", err)
	}
	good := learnedKind{Framework: "F", User: "u", Name: "n", Values: entries(t, 1)[0].Curve.Values()}
	bad := good
	bad.Runs = 0
	record, err = encodeLearned([]learnedKind{bad, good, bad})
	if err != nil {
		t.Fatal(err)
	}
	if all, skipped, err := DecodeLearned(record); err != nil || skipped != 2 || len(all) != 1 {
		t.Errorf("%d entries, %d skipped, %v", len(all), skipped, err)
	}
}

// TestLearnedIsBounded: a small record, whose text is large or no list of kinds, is refused and takes little memory.
func TestLearnedIsBounded(t *testing.T) {
	for _, text := range []string{
		`{"kinds":[` + strings.Repeat("{},", 1<<20) + `{}]}`, `{"kinds":[`, `{"kinds":[]} {}`, `["` + strings.Repeat("x", 1<<20),
	} {
		body, err := gzipped(text)
		if err != nil {
			t.Fatal(err)
		}
		record := append(learnedHeader(body), body...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err = DecodeLearned(record)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 64<<20 {
			t.Errorf("%.20s: %d bytes are allocated, %v", text, took, err)
		}
	}
}

// FuzzLearned: any bytes after a correct first line are a record or an error, and a record stays what it is.
func FuzzLearned(f *testing.F) {
	record, _, err := EncodeLearned(entries(f, 1))
	if err != nil {
		f.Fatal(err)
	}
	_, body, _ := bytes.Cut(record, []byte("\n"))
	f.Add(body, true)
	f.Add(record, false)
	f.Add([]byte("penstock-forecasts 2 x\n"), false)
	for _, text := range []string{`{}`, `{"kinds":[{"framework":"F","name":"n","runs":1,"x":1,"c":[1]}]}`, `{"kinds":null}`, `{"kinds":[null]}`, `[`} {
		packed, err := gzipped(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed, true)
	}
	f.Fuzz(func(t *testing.T, body []byte, header bool) {
		if header {
			body = append(learnedHeader(body), body...)
		}
		all, _, err := DecodeLearned(body)
		if err != nil {
			return
		}
		again, kept, err := EncodeLearned(all)
		if err != nil || kept != len(all) {
			t.Fatalf("%d of %d, %v", kept, len(all), err)
		}
		if got, skipped, err := DecodeLearned(again); err != nil || skipped != 0 || len(got) != len(all) {
			t.Fatalf("%d of %d, %d skipped, %v", len(got), len(all), skipped, err)
		}
		var h forecast.History
		h.Restore(all)
	})
}
