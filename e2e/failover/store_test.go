package failover

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/broker/leadership"
	"penstock/broker/store"
	"penstock/broker/store/storetest"
	"penstock/broker/zkclient"
	"penstock/e2e/internal/fixture"
	"penstock/lab/stand"
)

// folders counts the folders in ZooKeeper, one per test.
var folders atomic.Int64

func folder() string { return fmt.Sprintf("/test-%d", folders.Add(1)) }

// dial connects to the ensemble.
func dial(t testing.TB, folder, auth string) *zkclient.Client {
	t.Helper()
	return dialTo(t, ensemble.Addresses()+folder, auth, nil)
}

func dialTo(t testing.TB, servers, auth string, side func() *tls.Config) *zkclient.Client {
	t.Helper()
	// The longest session that the servers grant. No test waits until it expires.
	k, err := zkclient.Dial(zkclient.Options{Servers: servers, Auth: auth, TLS: side, Session: 20 * tick, Log: log})
	fixture.Must(t, err)
	t.Cleanup(k.Close)
	return k
}

// always is a fence that is always valid: a znode that never changes.
type always struct{ path string }

func (a always) Fence() (string, int32, uint64, bool) { return a.path, 0, 7, true }

// conformance runs the tests of every store on versions in ZooKeeper.
func conformance(t *testing.T, servers string, side func() *tls.Config) {
	where, places := folder(), 0
	place := func(t testing.TB) storetest.Place {
		places++
		sub := dialTo(t, fmt.Sprintf("%s%s-%d", servers, where, places), "", side)
		ctx, cancel := context.WithTimeout(context.Background(), stand.Patience)
		defer cancel()
		fence := sub.Path("fence")
		fixture.Must(t, sub.Ensure(ctx, fence))
		return func(testing.TB) store.Store { return store.NewZooKeeper(sub, always{fence}, log) }
	}
	storetest.Run(t, place)
	t.Run("shared", func(t *testing.T) { storetest.Shared(t, place) })
	if side == nil {
		t.Run("lasting", func(t *testing.T) { storetest.Lasting(t, place) })
	}
}

// TestTooLarge: a policy that is too large for ZooKeeper is refused with a remedy, and the largest
// possible policy is accepted.
func TestTooLarge(t *testing.T) {
	k := dial(t, folder(), "")
	fence := k.Path("fence")
	fixture.Must(t, k.Ensure(t.Context(), fence))
	s := store.NewZooKeeper(k, always{fence}, log)
	defer s.Close()
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789{}"
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, store.MaxText)
	for i := range text {
		text[i] = letters[random.IntN(len(letters))] // the text compresses to no less than six bits per byte
	}
	version := func(number uint64, weights int) store.Version {
		v := store.Version{Number: number, Text: text, Author: "a", Time: time.UnixMilli(1), Weights: map[string]int{}}
		for range weights {
			name := make([]byte, store.MaxName)
			for i := range name {
				name[i] = letters[random.IntN(len(letters))]
			}
			v.Weights[string(name)] = 1
		}
		return v
	}
	// The text takes some 790 KB, each weight's name some 195 bytes.
	low, high := 0, 10_000
	for number := uint64(1); high-low > 1; {
		middle := (low + high) / 2
		err := s.Append(t.Context(), version(number, middle))
		switch {
		case err == nil:
			low = middle
			number++
		case strings.Contains(err.Error(), "bytes compressed, and ZooKeeper takes"):
			high = middle
		default:
			t.Fatal(err)
		}
	}
	if low < 500 || high > 2000 {
		t.Errorf("at most %d weights fit in", low)
	}
}

// TestFence: a former leader that still believes it leads cannot write.
func TestFence(t *testing.T) {
	where := folder()
	old := newCandidate(t, where, "old")
	old.await(t, "leads", func(s leadership.State) bool { return s.Leading })
	late := &remembered{}
	late.path, late.version, late.epoch, late.leading = old.election.Fence()
	stale := store.NewZooKeeper(old.client, late, log)
	defer stale.Close()
	v := store.Version{Number: 1, Text: []byte("default: 1\n"), Author: "old", Time: time.Now()}
	fixture.Must(t, stale.Append(t.Context(), v))
	other := newCandidate(t, where, "new")
	other.await(t, "knows who leads", func(s leadership.State) bool { return s.Leader == "old:1" && s.Epoch == late.epoch })
	v.Number = 2
	if err := other.store.Append(t.Context(), v); !errors.Is(err, store.ErrNotLeader) {
		t.Errorf("a broker that does not lead writes: %v", err)
	}
	old.stop()
	other.await(t, "leads", func(s leadership.State) bool { return s.Leading && s.Epoch > late.epoch })
	// The old leader's session has ended, so its message comes through another session.
	stale = store.NewZooKeeper(dial(t, where, ""), late, log)
	defer stale.Close()
	if err := stale.Append(t.Context(), v); !errors.Is(err, store.ErrNotLeader) {
		t.Errorf("the old leader writes: %v", err)
	}
	v.Author = "new"
	if err := other.store.Append(t.Context(), v); err != nil {
		t.Errorf("the new leader does not write: %v", err)
	}
	if v, err := other.store.Latest(t.Context()); err != nil || v.Number != 2 || v.Author != "new" {
		t.Errorf("%+v, %v", v, err)
	}
}

// remembered is a former leadership.
type remembered struct {
	path    string
	version int32
	epoch   uint64
	leading bool
}

func (r *remembered) Fence() (string, int32, uint64, bool) {
	return r.path, r.version, r.epoch, r.leading
}

// candidate is a broker's part in an election, in this process.
type candidate struct {
	client   *zkclient.Client
	election *leadership.Election
	store    *store.ZooKeeper
	stop     func()
}

func newCandidate(t *testing.T, folder, name string) *candidate {
	t.Helper()
	c := &candidate{client: dial(t, folder, "")}
	var err error
	if c.election, err = leadership.NewElection(c.client, name, name+":1", log.With("broker", name)); err != nil {
		t.Fatal(err)
	}
	c.store = store.NewZooKeeper(c.client, c.election, log)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.election.Run(ctx) })
	c.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		fixture.Check(t, c.store.Close())
	})
	t.Cleanup(c.stop)
	return c
}

func (c *candidate) await(t *testing.T, what string, holds func(leadership.State) bool) {
	t.Helper()
	fixture.Eventually(t, what, func() bool { return holds(c.election.State()) })
}

// TestElection: one of several candidates leads at a time. When the leader leaves, the next
// candidate leads with a larger epoch, and all know the leader.
func TestElection(t *testing.T) {
	where := folder()
	var all []*candidate
	for i := range 4 {
		all = append(all, newCandidate(t, where, fmt.Sprintf("b%d", i)))
	}
	last := uint64(0)
	for len(all) > 0 {
		leader := -1
		fixture.Eventually(t, "a candidate leads, and all know the leader", func() bool {
			leader = -1
			var leads leadership.State // as last read; it may be outdated
			for i, c := range all {
				s := c.election.State()
				if !s.Leading {
					continue
				}
				if leader >= 0 {
					if still := all[leader].election.State(); still.Leading && still.Epoch == leads.Epoch {
						t.Fatalf("two lead: %+v and %+v", still, s)
					}
				}
				leader, leads = i, s
			}
			if leader < 0 {
				return false
			}
			s := all[leader].election.State()
			for _, c := range all {
				if have := c.election.State(); have.Leader != s.Leader || have.Epoch != s.Epoch {
					return false
				}
			}
			return s.Epoch > last
		})
		last = all[leader].election.State().Epoch
		all[leader].stop()
		if s := all[leader].election.State(); s.Leading {
			t.Errorf("a candidate that has ended leads: %+v", s)
		}
		all = append(all[:leader], all[leader+1:]...)
	}
}

// TestSecret: without the credentials the brokers' data cannot be read or changed, and no log
// contains the credentials.
func TestSecret(t *testing.T) {
	where := folder()
	file := write(t, "secret", "penstock:hush-hush\n")
	k := dial(t, where, file)
	fixture.Must(t, k.Ensure(t.Context(), k.Path("kept")))
	if _, err := k.Get(t.Context(), k.Path("kept")); err != nil {
		t.Errorf("with the credentials: %v", err)
	}
	for name, auth := range map[string]string{"none": "", "others": write(t, "others", "penstock:guess")} {
		other := dial(t, where, auth)
		if _, err := other.Get(t.Context(), other.Path("kept")); err == nil || !strings.Contains(err.Error(), "not authenticated") {
			t.Errorf("with %s: %v", name, err)
		}
		if _, err := other.Create(t.Context(), other.Path("mine"), nil, 0); err == nil {
			t.Errorf("with %s a znode can be made", name)
		}
	}
	if strings.Contains(logged.String(), "hush") {
		t.Error("the secret is in a log")
	}
}

// TestSessionLength: a broker knows if the server grants another session length than it requested.
func TestSessionLength(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		zkclient.SessionMin: zkclient.SessionMin, // the server grants 2 ticks; using a shorter length is safe
		session:             session,
		zkclient.SessionMax: 20 * tick, // the server grants less
	} {
		k, err := zkclient.Dial(zkclient.Options{Servers: ensemble.Addresses(), Session: asked, Log: log})
		fixture.Must(t, err)
		fixture.Eventually(t, "a session", func() bool { return k.SessionID() != 0 })
		if got := k.Session(); got != want {
			t.Errorf("asked for %v: %v, want %v", asked, got, want)
		}
		k.Close()
	}
}
