package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/broker/leadership"
	"penstock/broker/store"
	"penstock/settings"
	"penstock/wire/cluster"
)

// TestWeightRetentionOfFollower: a follower does not see which applications are at work. So when it
// begins to lead, it keeps all set weights for the whole retention time, and also a weight that was
// just set again.
func TestWeightRetentionOfFollower(t *testing.T) {
	o := &office{changes: make(chan struct{}, 1)}
	shared := store.NewMemory()
	b, err := New(t.Context(), Options{Leadership: o, Store: shared})
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Append(t.Context(), store.Version{Number: 1, Weights: map[string]int{"a": 5, "b": 5}}); err != nil {
		t.Fatal(err)
	}
	if err := b.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-weightRetention - time.Hour)
	age := func() { b.lastActive["a"], b.lastActive["b"] = past, past }
	age()
	o.set(leadership.State{Leading: true, Epoch: 3}) // the broker has not processed it yet
	applyText(t, b, "default: 2")
	if len(b.policy.Set) != 2 {
		t.Errorf("the new leader has dropped weights: %v are left", b.policy.Set)
	}
	age()
	for range 2 {
		if _, err := (operators{b: b}).SetWeight(callFrom("127.0.0.1"), &cluster.SetWeightRequest{Application: "a", Weight: 7, Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	applyText(t, b, "default: 3")
	if w := b.policy.Set; len(w) != 1 || w["a"] != 7 {
		t.Errorf("%v, want a's, which has just been set", w)
	}
}

// TestVersionsRestart: a different version of the same number is put in force.
func TestVersionsRestart(t *testing.T) {
	shared := store.NewMemory()
	b, err := New(t.Context(), Options{Store: shared})
	if err != nil {
		t.Fatal(err)
	}
	applyText(t, b, "default: 2")
	b.options.Store = store.NewMemory()
	if err := b.options.Store.Append(t.Context(), store.Version{Number: 1, Text: []byte("default: 5"), Time: b.current.Time}); err != nil {
		t.Fatal(err)
	}
	if err := b.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.version != 1 || b.policy.Default != 5 {
		t.Errorf("version %d with %d in force", b.version, b.policy.Default)
	}
}

// failing is a store in which some requests fail.
type failing struct {
	store.Store
	mu            sync.Mutex
	asked, writes int
	latest        func(ctx context.Context, asked, writes int) error // gets the numbers of reads and writes so far
}

func (f *failing) Latest(ctx context.Context) (store.Version, error) {
	f.mu.Lock()
	f.asked++
	err := f.latest(ctx, f.asked, f.writes)
	f.mu.Unlock()
	if err != nil {
		return store.Version{}, err
	}
	return f.Store.Latest(ctx)
}

func (f *failing) Append(ctx context.Context, v store.Version) error {
	f.mu.Lock()
	f.writes++
	f.mu.Unlock()
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("written to without a deadline")
	}
	return f.Store.Append(ctx, v)
}

// TestStoredButNotInForce: a version that is written but cannot be read is not reported as a failed
// write.
func TestStoredButNotInForce(t *testing.T) {
	f := &failing{Store: store.NewMemory(), latest: func(_ context.Context, _, writes int) error {
		if writes > 0 {
			return fmt.Errorf("the disk is slow: %w", context.DeadlineExceeded)
		}
		return nil
	}}
	b, err := New(t.Context(), Options{Store: f})
	if err != nil {
		t.Fatal(err)
	}
	_, err = operators{b: b}.Apply(callFrom("127.0.0.1"), &cluster.ApplyRequest{Text: []byte("default: 2")})
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "version 1 is stored, but not in force on this broker yet: ") {
		t.Error(err)
	}
	f.writes = 0
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("default: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.ApplyFile(t.Context(), file); err != nil {
		t.Errorf("the file's version is written: %v", err)
	}
}

// TestFollowFileRetries: a changed policy file comes into force after a temporary error.
func TestFollowFileRetries(t *testing.T) {
	f := &failing{Store: store.NewMemory(), latest: func(_ context.Context, asked, _ int) error {
		if asked == 2 || asked == 3 {
			return errors.New("no answer")
		}
		return nil
	}}
	b, err := New(t.Context(), Options{Store: f})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	last := settings.Fingerprint(file)
	if err := os.WriteFile(file, []byte("default: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { b.FollowFile(ctx, file, last) })
	defer following.Wait()
	defer cancel()
	eventually(t, "the file is in force", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.policy.Default == 7
	})
}
