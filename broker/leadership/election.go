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
	// renewalsPerSession is the number of times that a leader renews its lease (zkclient.Lease)
	// during one session length.
	renewalsPerSession = 6
	// retryInterval is the wait after a failed candidacy.
	retryInterval = 250 * time.Millisecond
	// rightsInterval is the wait if others can change the brokers' znodes.
	rightsInterval = 10 * time.Second
	// maxNameBytes is the maximum length of a broker's name and of its address.
	maxNameBytes = 256
)

// Znodes of the election, in the brokers' folder.
const (
	candidatesNode = "brokers" // one ephemeral, sequential child for each broker; the first one leads
	epochNode      = "epoch"   // the last leader, with its epoch
)

// record describes a broker in ZooKeeper.
type record struct {
	Epoch   uint64 `json:"epoch,omitempty"`
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Election is the leadership of one of several brokers, elected through ZooKeeper.
type Election struct {
	client   *zkclient.Client
	self     record
	instance string // identifies this process in names of candidates
	log      *slog.Logger
	changes  chan struct{}

	mu       sync.Mutex
	state    State
	leaseEnd time.Time // end of the leader's lease, on the monotonic clock
	version  int32     // version of the epoch's znode since this leader wrote it
}

// NewElection returns a candidate; Run starts the candidacy. address is the broker's address as it
// is in the nodes' settings.
func NewElection(client *zkclient.Client, name, address string, log *slog.Logger) (*Election, error) {
	if name == "" || address == "" || len(name) > maxNameBytes || len(address) > maxNameBytes {
		return nil, fmt.Errorf("a broker needs a name and an address of 1 to %d bytes", maxNameBytes)
	}
	return &Election{client: client, self: record{Name: name, Address: address}, instance: strings.ToLower(rand.Text()),
		log: log, changes: make(chan struct{}, 1)}, nil
}

// State implements Leadership. A leader that was suspended for a while notices here first that
// its lease has ended.
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

// Fence returns a check for the leader's transactions: the znode at path must have the version.
// leading is false if this broker does not lead.
func (e *Election) Fence() (path string, version int32, epoch uint64, leading bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.client.Path(epochNode), e.version, e.state.Epoch, e.state.Leading && time.Now().Before(e.leaseEnd)
}

// Run takes part in the election until ctx ends, and then resigns.
func (e *Election) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.campaign(ctx)
		e.stepDown(State{Epoch: e.State().Epoch})
		if ctx.Err() != nil {
			break
		}
		e.log.Warn("not a candidate at the moment; retrying", "error", err)
		wait := retryInterval
		if errors.Is(err, zkclient.ErrOpen) { // until somebody has looked at it
			wait = rightsInterval
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	e.client.Close() // the next broker takes over without waiting for the session to expire
}

// stepDown records that this broker does not lead, and which broker does.
func (e *Election) stepDown(s State) {
	e.mu.Lock()
	was := e.state
	e.state, e.leaseEnd = s, time.Time{}
	e.mu.Unlock()
	if was.Leading {
		e.log.Warn("this broker no longer leads", "epoch", was.Epoch)
	}
	if was != s {
		notify(e.changes)
	}
}

// errSessionEnded means that the candidate's znode no longer exists: the session ended, or the
// znode was removed.
var errSessionEnded = errors.New("the session with ZooKeeper has ended")

// campaign makes this broker a candidate, and leads once it is the first one. It returns when the
// session, the leadership or ctx ends, or ZooKeeper does not answer.
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
			return fmt.Errorf("list the candidates: %w", err)
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
		// Each candidate watches only the candidate before it, so that the end of a candidate wakes
		// only one other.
		if beforeName != names[i-1] || before.Next == nil {
			before, err = e.client.Watch(wait, e.client.Path(candidatesNode, names[i-1]))
			beforeName = names[i-1]
		}
		if errors.Is(err, zk.ErrNoNode) { // that candidate has ended meanwhile
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
			return fmt.Errorf("watch the candidate before this one, and the leader: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-before.Next:
			before.Next = nil
		case <-known.Next:
			known.Next = nil
		case <-e.client.Events():
		case <-time.After(e.client.Session()): // in case an event was missed
		}
	}
}

// enroll makes this broker's znode among the candidates and returns its name. The znode may exist
// already, from an attempt whose answer was lost.
func (e *Election) enroll(ctx context.Context) (own string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*e.client.Session())
	defer cancel()
	folder := e.client.Path(candidatesNode)
	if err := e.client.Ensure(ctx, folder, e.client.Path(epochNode)); err != nil {
		return "", err
	}
	if err := e.client.CheckRights(ctx, 1); err != nil {
		return "", err
	}
	names, err := e.client.Children(ctx, folder)
	if err != nil {
		return "", fmt.Errorf("list the candidates: %w", err)
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
		default: // the znode of an earlier session, which the server has not ended yet
			if err := e.client.Delete(ctx, folder+"/"+name); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return "", err
			}
		}
	}
	path, err := e.client.Create(ctx, folder+"/"+e.instance+"-", e.self.encode(), zk.FlagEphemeral|zk.FlagSequence)
	if err != nil {
		return "", fmt.Errorf("become a candidate: %w", err)
	}
	return path[len(folder)+1:], nil
}

// lead begins an epoch and leads until the leadership is lost.
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

// renew renews the lease until the leadership is lost.
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
			return errors.New("the lease has expired: ZooKeeper has not answered for two thirds of a session, and another broker may lead")
		case <-ticker.C:
		}
		sent := time.Now()
		wait, cancel := context.WithDeadline(ctx, until)
		// The lease is renewed by a write, because a write needs a majority of the ensemble. A read
		// would prove nothing, since a single server answers it.
		failed, err := e.client.Multi(wait, zkclient.CheckOp(path, e.version), zkclient.SetOp(ownPath, e.self.encode(), -1))
		cancel()
		switch {
		case err == nil:
			e.mu.Lock()
			if time.Now().Before(e.leaseEnd) { // otherwise a caller of State may have seen the end of the lease
				e.leaseEnd = sent.Add(zkclient.Lease(e.client.Session()))
			}
			e.mu.Unlock()
		case failed == 0:
			return errors.New("another broker has begun an epoch")
		case failed == 1 || errors.Is(err, zk.ErrSessionExpired):
			return errSessionEnded
		default: // the library reconnects; the lease bounds the time for that
			e.log.Warn("the leader's lease was not renewed; retrying", "error", err)
		}
	}
}

func (r record) encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // impossible: a record holds two strings and a number
	}
	return text
}

// decodeRecord reads a record. A malformed record counts as empty.
func decodeRecord(text []byte) (r record) {
	if json.Unmarshal(text, &r) != nil || len(r.Name) > maxNameBytes || len(r.Address) > maxNameBytes {
		return record{}
	}
	return r
}

// sequence returns the number that ZooKeeper has appended to a candidate's name. A name without a
// number does not belong to a broker and is sorted last.
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
