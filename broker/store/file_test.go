package store_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/broker/store"
	"penstock/broker/store/storetest"
)

func folder(t testing.TB) storetest.Place {
	dir, err := os.MkdirTemp(t.TempDir(), "store")
	if err != nil {
		t.Fatal(err)
	}
	return func(t testing.TB) store.Store {
		f, err := store.OpenFile(dir)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

func TestFile(t *testing.T) {
	storetest.Run(t, folder)
	t.Run("lasting", func(t *testing.T) { storetest.Lasting(t, folder) })
}

func TestMemory(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Place { return func(testing.TB) store.Store { return store.NewMemory() } })
}

// TestOpenFileWithoutFolder: a misspelt path does not become a new store.
func TestOpenFileWithoutFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "misspelt")
	if _, err := store.OpenFile(dir); err == nil || !strings.Contains(err.Error(), "no such folder") {
		t.Errorf("no folder: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("it was made: %v", err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenFile(dir); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("a file: %v", err)
	}
}

func TestOneBrokerAFolder(t *testing.T) {
	dir := t.TempDir()
	f, err := store.OpenFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenFile(dir); err == nil || !strings.Contains(err.Error(), "another broker has this folder open") {
		t.Errorf("a second broker: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := store.OpenFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestDamage: a version that is truncated anywhere, or changed, is refused.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	f, err := store.OpenFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= 2; n++ {
		if err := f.Append(t.Context(), store.Version{Number: n, Text: []byte("default: 1\n"), Author: "a", Time: time.UnixMilli(1)}); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	newest := filepath.Join(dir, "00000000000000000002.version")
	whole, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, text []byte) {
		t.Helper()
		if err := os.WriteFile(newest, text, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := store.OpenFile(dir)
		if err == nil {
			v, _ := f.Latest(t.Context())
			f.Close()
			t.Fatalf("%s: accepted as %+v", what, v)
		}
		if !strings.Contains(err.Error(), newest+" is damaged") || !strings.Contains(err.Error(), "move it away") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for length := range whole {
		refused(fmt.Sprintf("the first %d bytes", length), whole[:length])
	}
	for i := range whole {
		changed := append([]byte{}, whole...)
		changed[i] ^= 1
		refused(fmt.Sprintf("byte %d changed", i), changed)
	}
	refused("more behind it", append(whole[:len(whole):len(whole)], '\n'))
	first, err := os.ReadFile(filepath.Join(dir, "00000000000000000001.version"))
	if err != nil {
		t.Fatal(err)
	}
	refused("another version", first)

	// As the error advises: after the file is moved away, the version before it is in force.
	if err := os.Rename(newest, filepath.Join(dir, "damaged")); err != nil {
		t.Fatal(err)
	}
	if f, err = store.OpenFile(dir); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if v, err := f.Latest(t.Context()); err != nil || v.Number != 1 {
		t.Errorf("%+v, %v", v, err)
	}
}

// childDir is where the child of TestCrash writes.
const childDir = "STORE_TEST_CHILD"

// TestMain is also the child process of TestCrash, which writes versions and prints the written
// ones until it is killed.
func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	f, err := store.OpenFile(dir)
	if err == nil {
		var v store.Version
		for v, err = f.Latest(context.Background()); err == nil; v.Number, v.Text = v.Number+1, fmt.Appendf(nil, "# %d\n%s", v.Number+1, strings.Repeat("#\n", 50_000)) {
			if v.Number > 0 {
				if have, _ := f.Latest(context.Background()); have.Number < v.Number {
					if err = f.Append(context.Background(), v); err != nil {
						break
					}
				}
			}
			fmt.Println(v.Number)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestCrash: after a kill -9 in the middle of a write, all confirmed versions exist completely, and
// no incomplete one exists.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	newest := uint64(0)
	leftovers := 0
	for round := range 15 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		child.Stderr = os.Stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := newest
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if acknowledged, err = strconv.ParseUint(lines.Text(), 10, 64); err != nil {
				t.Fatal(err)
			}
			if acknowledged >= newest+3+uint64(round%3) {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if child.Wait() == nil || acknowledged < newest+3 {
			t.Fatalf("the child ended by itself after version %d", acknowledged)
		}
		unwhole, err := filepath.Glob(filepath.Join(dir, "*.writing"))
		if err != nil {
			t.Fatal(err)
		}
		leftovers += len(unwhole)
		f, err := store.OpenFile(dir)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		v, err := f.Latest(t.Context())
		if err != nil || v.Number < acknowledged || v.Number > acknowledged+1 || !strings.HasPrefix(string(v.Text), fmt.Sprintf("# %d\n", v.Number)) {
			t.Errorf("round %d: %d was written, the newest is %d, %v", round, acknowledged, v.Number, err)
		}
		newest = v.Number
		all := uint64(0)
		err = f.History(t.Context(), store.Keep, func(store.Version) bool { all++; return true })
		if err != nil || all != newest {
			t.Errorf("round %d: %d versions of %d, %v", round, all, newest, err)
		}
		f.Close()
	}
	t.Logf("%d versions; %d times a kill left one half written", newest, leftovers)
}

func FuzzDecode(f *testing.F) {
	whole, err := store.Encode(store.Version{Number: 3, Text: []byte("default: 1\n"), Weights: map[string]int{"a": 1}, Time: time.UnixMilli(5)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:40])
	f.Add([]byte("penstock-policy-version 1 \n{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := store.Decode(text)
		if err != nil {
			return
		}
		if err := v.Check(); err != nil {
			t.Fatal(err)
		}
		again, err := store.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if w, err := store.Decode(again); err != nil || w.Number != v.Number || string(w.Text) != string(v.Text) {
			t.Fatalf("%+v became %+v, %v", v, w, err)
		}
	})
}

// TestLearnedInAFile: a broker that opens the folder again has the record. A damaged one does not affect the versions.
func TestLearnedInAFile(t *testing.T) {
	dir := t.TempDir()
	open := func() *store.File {
		t.Helper()
		f, err := store.OpenFile(dir)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := open()
	if err := f.Append(t.Context(), store.Version{Number: 1, Text: []byte("default: 1\n"), Author: "a", Time: time.UnixMilli(1)}); err != nil {
		t.Fatal(err)
	}
	if err := f.KeepLearned(t.Context(), []byte("record")); err != nil {
		t.Fatal(err)
	}
	f.Close()
	// A write that a crash has interrupted.
	if err := os.WriteFile(filepath.Join(dir, "forecasts.writing"), []byte("rec"), 0o600); err != nil {
		t.Fatal(err)
	}
	f = open()
	if got, err := f.Learned(t.Context()); err != nil || string(got) != "record" {
		t.Errorf("%q, %v", got, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("%v, %v", left, err)
	}
	f.Close()
	if err := os.WriteFile(filepath.Join(dir, "forecasts"), make([]byte, 2*store.MaxLearned), 0o600); err != nil {
		t.Fatal(err)
	}
	f = open()
	defer f.Close()
	got, err := f.Learned(t.Context())
	if err != nil || len(got) > store.MaxLearned+1 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, _, err := store.DecodeLearned(got); err == nil {
		t.Error("a damaged record is used")
	}
	if v, err := f.Latest(t.Context()); err != nil || v.Number != 1 {
		t.Errorf("%+v, %v", v, err)
	}
}
