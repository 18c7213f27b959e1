package leadership

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"penstock/broker/zkclient"
)

const (
	// beats is how often a session a leader gives its word (zkclient.Word).
	renewalsPerSession = 6
	// retry is the wait after a candidacy that failed.
	retryInterval = 250 * time.Millisecond
	// nameMax bounds a broker's name and its address, in bytes.
	maxNameBytes = 256
)

// Znodes of the election, in the brokers' folder.
const (
	candidatesNode = "brokers" // one ephemeral, sequential child a broker; the first leads
	epochNode      = "epoch"   // who led last, with its epoch
)

// record is what a broker says of itself in ZooKeeper.
type record struct {
	Epoch   uint64 `json:"epoch,omitempty"`
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Election is the leadership of several brokers, by ZooKeeper.
type Election struct {
	client   *zkclient.Client
	self     record
	instance string // of this process, in its candidates' names
	log      *slog.Logger
	changes  chan struct{}

	mu       sync.Mutex
	state    State
	leaseEnd time.Time // a leader's word holds; monotonic
	version  int32     // of the epoch's znode, as it was made by this leadership
}

// NewElection returns a candidacy; Run begins it. Address is where nodes reach this broker,
// as it stands in their settings.
func NewElection(k *zkclient.Client, name, address string, log *slog.Logger) (*Election, error) {
	if name == "" || address == "" || len(name) > maxNameBytes || len(address) > maxNameBytes {
		return nil, fmt.Errorf("a broker has a name and an address of 1 to %d bytes", maxNameBytes)
	}
	return &Election{client: k, self: record{Name: name, Address: address}, instance: strings.ToLower(rand.Text()),
		log: log, changes: make(chan struct{}, 1)}, nil
}

// State implements Leadership. A leader that was stopped for a while finds here that its
// word holds no more, before anything else has noticed.
func (e *Election) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Leading && !time.Now().Before(e.leaseEnd) {
		return State{Epoch: e.state.Epoch}
	}
	return e.state
}

// Changes implements Leadership.
func (e *Election) Changes() <-chan struct{} { return e.changes }

// Fence is what a change made as the leader has to be one transaction with: a check that
// the znode has the version. False where this broker does not lead.
func (e *Election) Fence() (path string, version int32, epoch uint64, leading bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.client.Path(epochNode), e.version, e.state.Epoch, e.state.Leading && time.Now().Before(e.leaseEnd)
}

// Run is a candidate until ctx ends, which gives the leadership up.
func (e *Election) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.campaign(ctx)
		e.stepDown(State{Epoch: e.State().Epoch})
		if ctx.Err() != nil {
			break
		}
		e.log.Warn("not a candidate for now", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
	e.client.Close() // the next broker need not wait for the session's end
}

// rest says that this broker does not lead, and who does.
func (e *Election) stepDown(s State) {
	e.mu.Lock()
	was := e.state
	e.state, e.leaseEnd = s, time.Time{}
	e.mu.Unlock()
	if was.Leading {
		e.log.Warn("this broker leads no more", "epoch", was.Epoch)
	}
	if was != s {
		notify(e.changes)
	}
}

// errGone: the candidate's znode is not there, so its session ended or somebody removed it.
var errSessionEnded = errors.New("the session with ZooKeeper has ended")

// candidate stands for as long as its session lasts.
func (e *Election) campaign(ctx context.Context) error {
	own, err := e.enroll(ctx)
	if err != nil {
		return err
	}
	epoch := e.client.Path(epochNode)
	var before, known zkclient.Watched
	var beforeName string
	for {
		wait, cancel := context.WithTimeout(ctx, e.client.Session())
		names, err := e.client.Children(wait, e.client.Path(candidatesNode))
		cancel()
		if err != nil {
			return fmt.Errorf("see who stands: %w", err)
		}
		slices.SortFunc(names, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })
		i := slices.Index(names, own)
		if i < 0 {
			return errSessionEnded
		}
		if i == 0 {
			return e.lead(ctx, own)
		}
		wait, cancel = context.WithTimeout(ctx, e.client.Session())
		// One candidate wakes one other: each watches only who is before it.
		if beforeName != names[i-1] || before.Next == nil {
			before, err = e.client.Watch(wait, e.client.Path(candidatesNode, names[i-1]))
			beforeName = names[i-1]
		}
		if errors.Is(err, zk.ErrNoNode) { // gone meanwhile: look again
			cancel()
			beforeName = ""
			continue
		}
		if err == nil && known.Next == nil {
			if known, err = e.client.Watch(wait, epoch); err == nil {
				r := decodeRecord(known.Data)
				e.stepDown(State{Leader: r.Address, Epoch: r.Epoch})
				e.log.Info("another broker leads", "leader", r.Name, "address", r.Address, "epoch", r.Epoch)
			}
		}
		cancel()
		if err != nil {
			return fmt.Errorf("watch who is before this broker, and who leads: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-before.Next:
			before.Next = nil
		case <-known.Next:
			known.Next = nil
		case <-e.client.Events():
		case <-time.After(e.client.Session()): // whatever was missed
		}
	}
}

// stand makes this broker's znode among the candidates, and returns its name. An attempt
// whose answer was lost may have made it already.
func (e *Election) enroll(ctx context.Context) (own string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*e.client.Session())
	defer cancel()
	folder := e.client.Path(candidatesNode)
	if err := e.client.Ensure(ctx, folder, e.client.Path(epochNode)); err != nil {
		return "", err
	}
	names, err := e.client.Children(ctx, folder)
	if err != nil {
		return "", fmt.Errorf("see who stands: %w", err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, e.instance) {
			continue
		}
		n, err := e.client.Get(ctx, folder+"/"+name)
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return "", err
		case n.Owner == e.client.SessionID():
			return name, nil
		default: // of a session that has ended for this broker, and will at the server
			if err := e.client.Delete(ctx, folder+"/"+name); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return "", err
			}
		}
	}
	path, err := e.client.Create(ctx, folder+"/"+e.instance+"-", e.self.encode(), zk.FlagEphemeral|zk.FlagSequence)
	if err != nil {
		return "", fmt.Errorf("stand for leader: %w", err)
	}
	return path[len(folder)+1:], nil
}

// lead takes the leadership and keeps it, until it is lost.
func (e *Election) lead(ctx context.Context, own string) error {
	path, ownPath := e.client.Path(epochNode), e.client.Path(candidatesNode, own)
	wait, cancel := context.WithTimeout(ctx, e.client.Session())
	defer cancel()
	last, err := e.client.GetLatest(wait, path)
	if err != nil {
		return fmt.Errorf("read the last epoch: %w", err)
	}
	r := e.self
	r.Epoch = NextEpoch(decodeRecord(last.Data).Epoch, time.Now())
	sent := time.Now()
	if _, err := e.client.Multi(wait, zkclient.CheckOp(ownPath, -1), zkclient.SetOp(path, r.encode(), last.Version)); err != nil {
		return fmt.Errorf("begin an epoch: %w", err)
	}
	e.mu.Lock()
	e.state = State{Leading: true, Leader: r.Address, Epoch: r.Epoch}
	e.version = last.Version + 1
	e.leaseEnd = sent.Add(zkclient.Lease(e.client.Session()))
	e.mu.Unlock()
	e.log.Info("this broker leads", "epoch", r.Epoch, "session", e.client.Session())
	notify(e.changes)
	return e.renew(ctx, path, ownPath)
}

// keep says again and again that this broker leads. It ends when that is not so any more.
func (e *Election) renew(ctx context.Context, path, ownPath string) error {
	ticker := time.NewTicker(e.client.Session() / renewalsPerSession)
	defer ticker.Stop()
	for {
		e.mu.Lock()
		until := e.leaseEnd
		e.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(until)):
			return errors.New("ZooKeeper has not answered for most of a session: another broker may lead")
		case <-ticker.C:
		}
		sent := time.Now()
		wait, cancel := context.WithDeadline(ctx, until)
		// A write is taken by a majority. What one server answers by itself says nothing.
		failed, err := e.client.Multi(wait, zkclient.CheckOp(path, e.version), zkclient.SetOp(ownPath, e.self.encode(), -1))
		cancel()
		switch {
		case err == nil:
			e.mu.Lock()
			if time.Now().Before(e.leaseEnd) { // else who asked meanwhile was told that it is over
				e.leaseEnd = sent.Add(zkclient.Lease(e.client.Session()))
			}
			e.mu.Unlock()
		case failed == 0:
			return errors.New("another broker has begun an epoch")
		case failed == 1 || errors.Is(err, zk.ErrSessionExpired):
			return errSessionEnded
		default: // it connects anew; the word says for how long that may take
			e.log.Warn("ZooKeeper did not take a leader's word", "error", err)
		}
	}
}

func (r record) encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // two strings and a number
	}
	return text
}

// parse reads what a broker said; what is none counts as nothing said.
func decodeRecord(text []byte) (r record) {
	if json.Unmarshal(text, &r) != nil || len(r.Name) > maxNameBytes || len(r.Address) > maxNameBytes {
		return record{}
	}
	return r
}

// sequence is the number that ZooKeeper has put behind a candidate's name; who has none is
// nobody of ours, and is last.
func sequence(name string) int64 {
	n, err := strconv.ParseInt(name[strings.LastIndexByte(name, '-')+1:], 10, 64)
	if err != nil || n < 0 {
		return 1<<63 - 1
	}
	return n
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
