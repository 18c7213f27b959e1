// Package keeper is a broker's connection to ZooKeeper: one session, in a folder of its
// own, with calls that end with their context.
//
// Some things of the session have to be known here that the client library keeps to
// itself or does otherwise. How long it lasts is the server's choice (2 to 20 of its ticks),
// and a leader that took its own wish for it would lead on after another began: so it is read
// from the handshake. Servers' names are resolved at each connection, not once, for addresses
// behind them change. A server that hangs is left while there is time for another one (half a
// session). While an ensemble elects its own leader no server takes a connection, for part of a
// second; so they are asked more often than the library would, whose pause costs a leader its
// word. And no call is waited for longer than the caller can wait, and its error says why there
// is no connection.
package zkclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Bounds of what is given.
const (
	SessionMin    = 500 * time.Millisecond
	SessionMax    = 5 * time.Minute
	maxServers    = 16
	maxAuthBytes  = 1024                   // bytes of the file
	retryInterval = 500 * time.Millisecond // between attempts to give the credentials
	// rounds is how many times a session all servers are asked for a connection, for as long as
	// a leader's word holds. After that, or if it is no more often, it is once in the library's
	// pause.
	roundsPerSession = 12
	libraryPause     = time.Second
	// quietTime is the least time between two lines on one server without a connection.
	logInterval = 10 * time.Second
)

// Word is how long a leader's word holds, from the moment at which it sent what ZooKeeper's
// majority then took: two thirds of a session. The last third is for a server that passes on
// late, by half a tick at most, that it has heard of a session.
func Lease(session time.Duration) time.Duration { return session * 2 / 3 }

// Folder is where brokers keep what they have if the servers' list names none.
const Folder = "/penstock"

// Options of a connection.
type Options struct {
	// Servers is host:port,... of the ensemble, with a folder behind it if it is not to be
	// /penstock: zk1:2181,zk2:2181/clusters/a.
	Servers string
	// Auth is a file with user:password, for ZooKeeper's digest scheme: what is made can
	// then be read and changed with it only. Empty: by anybody.
	Auth string
	// TLS is for servers with a secure client port; nil: plain. It is asked for at each
	// connection, so that changed certificates are taken; the server's name is put in.
	TLS func() *tls.Config
	// Session is how long the server waits for a broker that says nothing.
	Session time.Duration
	Log     *slog.Logger
}

// Client is a connection. Its methods may be called by several goroutines.
type Client struct {
	conn          *zk.Conn
	root          string
	acl           []zk.ACL
	requested     time.Duration
	granted       atomic.Int64 // the session's length by the last handshake, ns
	log           *slog.Logger
	events        chan struct{}
	authenticated chan struct{} // closed when the credentials are
	closed        chan struct{}
	close         func()
	hosts         *hostProvider

	mu         sync.Mutex
	failures   map[string]connFailure // by server
	lastFailed string                 // the last server that gave no connection
}

// trouble is why a server gave no connection.
type connFailure struct {
	text     string    // empty: it gave one since
	logged   string    // what the log said last; empty: nothing since the last connection
	loggedAt time.Time // when it did
}

var folderPattern = regexp.MustCompile(`^(/[A-Za-z0-9_.-]+)+$`)

// Parse splits a list of servers from its folder.
func Parse(list string) (servers []string, root string, err error) {
	root = Folder
	if i := strings.IndexByte(list, '/'); i >= 0 {
		list, root = list[:i], list[i:]
	}
	if !folderPattern.MatchString(root) || path.Clean(root) != root || len(root) > 256 {
		return nil, "", fmt.Errorf("folder %q in ZooKeeper: give names of letters, digits, _ . and -, such as /penstock, in 256 bytes", root)
	}
	servers = strings.Split(list, ",")
	if len(servers) > maxServers {
		return nil, "", fmt.Errorf("%d ZooKeeper servers: give at most %d", len(servers), maxServers)
	}
	for _, s := range servers {
		if host, port, err := net.SplitHostPort(s); err != nil || host == "" || port == "" {
			return nil, "", fmt.Errorf("ZooKeeper server %q: give host:port, separated by commas", s)
		}
	}
	return servers, root, nil
}

// Dial begins to connect, and returns at once: the ensemble may be away for now.
func Dial(o Options) (*Client, error) {
	servers, root, err := Parse(o.Servers)
	if err != nil {
		return nil, err
	}
	if o.Session < SessionMin || o.Session > SessionMax {
		return nil, fmt.Errorf("session of %v: use %v to %v", o.Session, SessionMin, SessionMax)
	}
	k := &Client{root: root, acl: zk.WorldACL(zk.PermAll), requested: o.Session, log: o.Log,
		events: make(chan struct{}, 1), authenticated: make(chan struct{}), closed: make(chan struct{}), failures: map[string]connFailure{}}
	k.hosts = &hostProvider{client: k}
	k.close = sync.OnceFunc(func() {
		close(k.closed)
		k.conn.Close()
	})
	var secret string
	if o.Auth == "" {
		o.Log.Warn("whoever reaches ZooKeeper can change the policy there: no --zookeeper-auth", "folder", root)
	} else {
		if secret, err = readAuth(o.Auth); err != nil {
			return nil, err
		}
		user, password, _ := strings.Cut(secret, ":")
		k.acl = zk.DigestACL(zk.PermAll, user, password)
	}
	k.conn, _, err = zk.Connect(servers, o.Session, zk.WithHostProvider(k.hosts), zk.WithLogInfo(false),
		zk.WithLogger(debugLogger{o.Log}), zk.WithEventCallback(func(e zk.Event) {
			if e.Type == zk.EventSession {
				notify(k.events)
			}
		}),
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			return k.dial(network, address, timeout, o.TLS)
		}))
	if err != nil {
		return nil, err
	}
	if secret == "" {
		close(k.authenticated)
	} else {
		go k.authenticate(secret)
	}
	return k, nil
}

// introduce gives the credentials, which the library repeats at each connection once a
// server has taken them. Calls wait for that.
func (k *Client) authenticate(secret string) {
	for {
		err := k.conn.AddAuth("digest", []byte(secret))
		if err == nil {
			close(k.authenticated)
			return
		}
		k.log.Warn("ZooKeeper has not taken the credentials yet", "error", err)
		select {
		case <-k.closed:
			return
		case <-time.After(retryInterval):
		}
	}
}

func readAuth(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAuthBytes+1))
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(text), "\r\n")
	user, password, ok := strings.Cut(secret, ":")
	if !ok || user == "" || password == "" || len(text) > maxAuthBytes || strings.ContainsAny(secret, "\r\n") {
		return "", fmt.Errorf("%s: give one line, user:password, of at most %d bytes", file, maxAuthBytes)
	}
	return secret, nil
}

// Session is how long the server waits for this broker before it holds it for gone: the
// shorter one of what was asked for and what the server gave.
func (k *Client) Session() time.Duration {
	if given := time.Duration(k.granted.Load()); given > 0 {
		return min(given, k.requested)
	}
	return k.requested
}

// heard takes the session's length from a server's handshake.
func (k *Client) sessionGranted(address string, given time.Duration) {
	k.mu.Lock()
	k.failures[address] = connFailure{loggedAt: k.failures[address].loggedAt}
	k.lastFailed = ""
	k.mu.Unlock()
	if old := k.granted.Swap(int64(given)); old == int64(given) || given == k.requested {
		return
	}
	k.log.Warn("ZooKeeper gives sessions of another length, by its tickTime and its minSessionTimeout", "asked", k.requested, "given", given)
}

// Events gets a value when something has happened to the session.
func (k *Client) Events() <-chan struct{} { return k.events }

// SessionID is the session's; 0 if there is none.
func (k *Client) SessionID() int64 { return k.conn.SessionID() }

// Path is a znode in the brokers' folder.
func (k *Client) Path(names ...string) string { return k.root + "/" + strings.Join(names, "/") }

// Close ends the session: what is ephemeral of it is gone at once.
func (k *Client) Close() { k.close() }

// within makes a call that knows no context, again where it was never sent for want of a
// server. One that is given up ends when the library gets a connection, or pauses.
func callWithContext[T any](ctx context.Context, k *Client, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		select {
		case <-k.authenticated:
			v, err := call()
			for errors.Is(err, zk.ErrNoServer) && sleep(ctx, retryInterval) {
				v, err = call()
			}
			done <- result{v, err}
		case <-k.closed:
			done <- result{err: zk.ErrClosing}
		case <-ctx.Done():
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		if why := k.lastFailure(); why != "" {
			return none, fmt.Errorf("no answer from ZooKeeper: %w (%s)", ctx.Err(), why)
		}
		return none, fmt.Errorf("no answer from ZooKeeper: %w", ctx.Err())
	}
}

// wait is false if ctx has ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Node is a znode's data and version, and its session if it is ephemeral.
type Node struct {
	Data         []byte
	Version      int32
	Owner        int64
	ModifiedZxid int64 // the transaction that changed it last
}

// Get reads a znode.
func (k *Client) Get(ctx context.Context, path string) (Node, error) {
	return callWithContext(ctx, k, func() (Node, error) {
		data, stat, err := k.conn.Get(path)
		return node(data, stat), err
	})
}

// Watched is a znode with what tells of its next change.
type Watched struct {
	Node
	Next <-chan zk.Event
}

// Watch reads a znode. Each call that succeeds is one more watch, until the znode changes.
func (k *Client) Watch(ctx context.Context, path string) (Watched, error) {
	return callWithContext(ctx, k, func() (Watched, error) {
		data, stat, changed, err := k.conn.GetW(path)
		return Watched{node(data, stat), changed}, err
	})
}

func node(data []byte, stat *zk.Stat) Node {
	if stat == nil {
		return Node{}
	}
	return Node{Data: data, Version: stat.Version, Owner: stat.EphemeralOwner, ModifiedZxid: stat.Mzxid}
}

// Newest is Get of what all the ensemble has agreed on by now, and not of what one of its
// servers has heard so far.
func (k *Client) GetLatest(ctx context.Context, path string) (Node, error) {
	if _, err := callWithContext(ctx, k, func() (string, error) { return k.conn.Sync(path) }); err != nil {
		return Node{}, err
	}
	return k.Get(ctx, path)
}

// Children lists a znode's children.
func (k *Client) Children(ctx context.Context, path string) ([]string, error) {
	return callWithContext(ctx, k, func() ([]string, error) {
		names, _, err := k.conn.Children(path)
		return names, err
	})
}

// Create makes a znode; flags are the library's. It returns the znode's whole path.
func (k *Client) Create(ctx context.Context, path string, data []byte, flags int32) (string, error) {
	return callWithContext(ctx, k, func() (string, error) { return k.conn.Create(path, data, flags, k.acl) })
}

// Ensure makes znodes that are to be there, and their parents, empty.
func (k *Client) Ensure(ctx context.Context, paths ...string) error {
	for _, p := range paths {
		for i := 1; i <= len(p); i++ {
			if i < len(p) && p[i] != '/' {
				continue
			}
			if _, err := k.Create(ctx, p[:i], nil, 0); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				// Above its own folder a broker may have no right to look.
				if errors.Is(err, zk.ErrNoAuth) && i < len(k.root) {
					continue
				}
				return fmt.Errorf("make %s in ZooKeeper: %w", p[:i], err)
			}
		}
	}
	return nil
}

// Delete removes a znode, whatever its version.
func (k *Client) Delete(ctx context.Context, path string) error {
	_, err := callWithContext(ctx, k, func() (struct{}, error) { return struct{}{}, k.conn.Delete(path, -1) })
	return err
}

// Multi makes all changes or none. Where one does not hold, failed is the first such, from
// 0, and err says why; failed is -1 where it is not known.
func (k *Client) Multi(ctx context.Context, changes ...any) (failed int, err error) {
	results, err := callWithContext(ctx, k, func() ([]zk.MultiResponse, error) { return k.conn.Multi(changes...) })
	if err == nil {
		return -1, nil
	}
	for i, r := range results {
		if r.Error != nil {
			return i, r.Error
		}
	}
	return -1, err
}

// Check is a change for Multi that changes nothing: the znode is there and, where version
// is not -1, has it.
func CheckOp(path string, version int32) any {
	return &zk.CheckVersionRequest{Path: path, Version: version}
}

// Set is a change for Multi: the znode's data, if it has the version or that is -1.
func SetOp(path string, data []byte, version int32) any {
	return &zk.SetDataRequest{Path: path, Data: data, Version: version}
}

// Make is a change for Multi: a znode that is not there.
func (k *Client) CreateOp(path string, data []byte) any {
	return &zk.CreateRequest{Path: path, Data: data, Acl: k.acl}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// quiet passes on what the library says, which is of interest only when looked for.
type debugLogger struct{ log *slog.Logger }

func (q debugLogger) Printf(format string, args ...any) {
	q.log.Debug("zookeeper", "says", fmt.Sprintf(format, args...))
}
