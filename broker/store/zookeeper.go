package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"penstock/broker/zkclient"
)

const (
	// MaxZooKeeper is the maximum size of a compressed version in ZooKeeper, in bytes. Servers
	// accept messages of up to 1 MiB (jute.maxbuffer), and a message has other fields as well.
	MaxZooKeeper = 1_000_000
	// zkRetry is the wait after a failure to set a watch.
	zkRetry = 500 * time.Millisecond
	// zkHeader begins the data of a znode, and zkHeaderMax is the maximum length of the first
	// line.
	zkHeader    = "penstock-epoch "
	zkHeaderMax = 128
)

// Znodes of the store, in the brokers' folder.
const (
	newestNode   = "newest"   // number of the newest version, in decimal
	versionsNode = "versions" // one child for each version
	learnedNode  = "forecasts"
)

// Fence provides the leadership under which versions are written. Each write is one transaction
// with a check that the znode at path has the version. leading is false if this broker does not
// lead.
type Fence interface {
	Fence() (path string, version int32, epoch uint64, leading bool)
}

// ZooKeeper keeps the versions that several brokers share, in one znode for each version. A version
// is written in one transaction with checks of the leadership's epoch and of the newest number. So
// a former leader can write nothing, however late its message arrives.
type ZooKeeper struct {
	client *zkclient.Client
	fence  Fence
	log    *slog.Logger

	mu      sync.Mutex
	trimmed uint64 // all versions up to this one have been deleted

	changes chan struct{}
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// NewZooKeeper returns the store in the client's folder. The store watches for versions that other
// brokers write, until it is closed. Close leaves the client open.
func NewZooKeeper(client *zkclient.Client, f Fence, log *slog.Logger) *ZooKeeper {
	ctx, stop := context.WithCancel(context.Background())
	z := &ZooKeeper{client: client, fence: f, log: log, changes: make(chan struct{}, 1), stop: stop}
	z.stopped.Go(func() { z.watch(ctx) })
	return z
}

// path returns the path of a version's znode.
func (z *ZooKeeper) path(number uint64) string {
	return z.client.Path(versionsNode, fmt.Sprintf("%020d", number))
}

// Latest implements Store.
func (z *ZooKeeper) Latest(ctx context.Context) (Version, error) {
	number, _, err := z.newest(ctx)
	if err != nil || number == 0 {
		return Version{}, err
	}
	return z.Get(ctx, number)
}

// newest returns the number of the newest version (0 if there is no version), and ZooKeeper's
// version of the znode that holds this number.
func (z *ZooKeeper) newest(ctx context.Context) (number uint64, version int32, err error) {
	n, err := z.client.GetLatest(ctx, z.client.Path(newestNode))
	if errors.Is(err, zk.ErrNoNode) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read the newest policy's number in ZooKeeper: %w", err)
	}
	if len(n.Data) == 0 {
		return 0, n.Version, nil
	}
	if number, err = strconv.ParseUint(string(n.Data), 10, 64); err != nil || number == 0 {
		return 0, 0, fmt.Errorf("%s in ZooKeeper contains %.40q, not a number: write the number of the newest version there", z.client.Path(newestNode), n.Data)
	}
	return number, n.Version, nil
}

// Get implements Store.
func (z *ZooKeeper) Get(ctx context.Context, number uint64) (Version, error) {
	v, _, err := z.get(ctx, number)
	return v, err
}

// get is Get, and also returns the token of the attempt that wrote the version.
func (z *ZooKeeper) get(ctx context.Context, number uint64) (v Version, token string, err error) {
	n, err := z.client.Get(ctx, z.path(number))
	if errors.Is(err, zk.ErrNoNode) {
		return Version{}, "", ErrUnknown
	}
	if err != nil {
		return Version{}, "", fmt.Errorf("read version %d of the policy in ZooKeeper: %w", number, err)
	}
	if v, _, token, err = unpack(n.Data); err == nil && v.Number != number {
		err = fmt.Errorf("it contains version %d", v.Number)
	}
	if err != nil {
		return Version{}, "", fmt.Errorf("%s in ZooKeeper is damaged: %w", z.path(number), err)
	}
	return v, token, nil
}

// History implements Store.
func (z *ZooKeeper) History(ctx context.Context, limit int, each func(Version) bool) error {
	number, _, err := z.newest(ctx)
	if err != nil {
		return err
	}
	for left := min(limit, Keep); number > 0 && left > 0; number, left = number-1, left-1 {
		v, err := z.Get(ctx, number)
		if errors.Is(err, ErrUnknown) {
			break
		}
		if err != nil {
			return err
		}
		if !each(v) {
			break
		}
	}
	return nil
}

// Append implements Store. It fails with ErrNotLeader if another broker has become the leader,
// whether or not this broker knows that yet.
func (z *ZooKeeper) Append(ctx context.Context, v Version) error {
	if err := v.Check(); err != nil {
		return err
	}
	fence, fenceVersion, epoch, leading := z.fence.Fence()
	if !leading {
		return ErrNotLeader
	}
	token := rand.Text()
	data, err := pack(v, epoch, token)
	if err != nil {
		return err
	}
	newest := z.client.Path(newestNode)
	last, lastVersion, err := z.newest(ctx)
	if err == nil && last == 0 {
		if err = z.client.Ensure(ctx, newest, z.client.Path(versionsNode)); err == nil {
			last, lastVersion, err = z.newest(ctx)
		}
	}
	if err != nil {
		return err
	}
	if v.Number != last+1 {
		return ErrConflict
	}
	failed, err := z.client.Multi(ctx, zkclient.CheckOp(fence, fenceVersion),
		zkclient.SetOp(newest, strconv.AppendUint(nil, v.Number, 10), lastVersion), z.client.CreateOp(z.path(v.Number), data))
	switch {
	case err == nil:
	case failed == 0 && (errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode)):
		return ErrNotLeader
	case failed > 0 && (errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNodeExists)):
		return ErrConflict
	default:
		if err := z.confirmAppend(ctx, v.Number, token, err); err != nil {
			return err
		}
	}
	z.trim(ctx, v.Number)
	return nil
}

// confirmAppend finds out whether a version was written although the answer was lost. A read after
// a sync is conclusive: once the session has moved to another connection, ZooKeeper accepts nothing
// from the old connection.
func (z *ZooKeeper) confirmAppend(ctx context.Context, number uint64, token string, lost error) error {
	for {
		_, _, err := z.newest(ctx)
		if err == nil {
			_, found, err := z.get(ctx, number)
			switch {
			case err == nil && found == token:
				return nil
			case err == nil:
				return ErrConflict
			case errors.Is(err, ErrUnknown):
				return fmt.Errorf("version %d of the policy was not written: %w", number, lost)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("version %d of the policy may or may not be stored, see `penstock policy history`: %w", number, lost)
		case <-time.After(zkRetry):
		}
	}
}

// trim drops versions beyond Keep. Failures are retried with the next version.
func (z *ZooKeeper) trim(ctx context.Context, newest uint64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if newest <= Keep || z.trimmed >= newest-Keep {
		return
	}
	if z.trimmed == 0 {
		names, err := z.client.Children(ctx, z.client.Path(versionsNode))
		if err != nil {
			return
		}
		oldest := newest
		for _, name := range names {
			if n, err := strconv.ParseUint(name, 10, 64); err == nil {
				oldest = min(oldest, n)
			}
		}
		z.trimmed = oldest - min(oldest, 1)
	}
	for z.trimmed < newest-Keep {
		if err := z.client.Delete(ctx, z.path(z.trimmed+1)); err != nil && !errors.Is(err, zk.ErrNoNode) {
			z.log.Warn("an old version of the policy was not deleted; retrying with the next version", "version", z.trimmed+1, "error", err)
			return
		}
		z.trimmed++
	}
}

// watch reports each change of the newest version through Changes.
func (z *ZooKeeper) watch(ctx context.Context) {
	for ctx.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, z.client.Session())
		path := z.client.Path(newestNode)
		w, err := z.client.Watch(wait, path)
		if errors.Is(err, zk.ErrNoNode) {
			err = z.client.Ensure(wait, path)
			if err == nil {
				cancel()
				continue
			}
		}
		cancel()
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(zkRetry):
			}
			continue
		}
		notify(z.changes) // the version may have changed before the watch was set
		select {
		case <-ctx.Done():
		case <-w.Next:
		}
	}
}

// Changes implements Store.
func (z *ZooKeeper) Changes() <-chan struct{} { return z.changes }

// Learned implements Store.
func (z *ZooKeeper) Learned(ctx context.Context) ([]byte, error) {
	n, err := z.client.GetLatest(ctx, z.client.Path(learnedNode))
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what forecasts have learned in ZooKeeper: %w", err)
	}
	if len(n.Data) == 0 { // made, but not written yet
		return nil, nil
	}
	return n.Data, nil
}

// KeepLearned implements Store. It fails with ErrNotLeader if another broker has become the leader, whether or not this broker
// knows that yet.
func (z *ZooKeeper) KeepLearned(ctx context.Context, record []byte) error {
	fence, fenceVersion, _, leading := z.fence.Fence()
	if !leading {
		return ErrNotLeader
	}
	path := z.client.Path(learnedNode)
	if err := z.client.Ensure(ctx, path); err != nil {
		return err
	}
	failed, err := z.client.Multi(ctx, zkclient.CheckOp(fence, fenceVersion), zkclient.SetOp(path, record, -1))
	if failed == 0 && (errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode)) {
		return ErrNotLeader
	}
	if err != nil {
		return fmt.Errorf("keep what forecasts have learned in ZooKeeper: %w", err)
	}
	return nil
}

// Close implements Store.
func (z *ZooKeeper) Close() error {
	z.stop()
	z.stopped.Wait()
	return nil
}

// pack returns the data of a version's znode: a line with the epoch of the writer and a token of
// the attempt, and the compressed version.
func pack(v Version, epoch uint64, token string) ([]byte, error) {
	text, err := Encode(v)
	if err != nil {
		return nil, err
	}
	var data bytes.Buffer
	fmt.Fprintf(&data, "%s%d %s\n", zkHeader, epoch, token)
	w, err := gzip.NewWriterLevel(&data, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err = w.Write(text); err == nil {
		err = w.Close()
	}
	if err == nil && data.Len() > MaxZooKeeper {
		err = fmt.Errorf("version %d of the policy has %d bytes compressed, and ZooKeeper takes at most %d: shorten its text, or remove weights of single applications",
			v.Number, data.Len(), MaxZooKeeper)
	}
	return data.Bytes(), err
}

// unpack decodes what pack returned, and fails for anything else.
func unpack(data []byte) (v Version, epoch uint64, token string, err error) {
	head, packed, found := bytes.Cut(data[:min(len(data), MaxZooKeeper)], []byte("\n"))
	words := strings.Split(strings.TrimPrefix(string(head[:min(len(head), zkHeaderMax)]), zkHeader), " ")
	if !found || !bytes.HasPrefix(head, []byte(zkHeader)) || len(words) != 2 {
		return v, 0, "", errors.New("not a version of a policy")
	}
	if epoch, err = strconv.ParseUint(words[0], 10, 64); err != nil {
		return v, 0, "", fmt.Errorf("its epoch: %w", err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return v, 0, "", err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxRecord+1))
	if err != nil {
		return v, 0, "", err
	}
	v, err = Decode(text)
	return v, epoch, words[1], err
}
