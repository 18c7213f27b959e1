// Package zkclient is a broker's client of ZooKeeper: one session, all znodes below one folder, and
// calls that end with their context.
//
// It wraps github.com/go-zookeeper/zk, and differs from it in details on which a leader's lease
// depends:
//
//   - The server decides on the length of a session (2 to 20 of its ticks), and the library does
//     not report it. A leader that relied on the requested length could continue to lead after its
//     successor began. So the length is read from the connection's handshake.
//   - Host names are resolved for each connection, since their addresses change.
//   - A server that hangs is abandoned after half a session, in time to try another one.
//   - While an ensemble elects its leader, no server accepts sessions for a part of a second. So
//     servers are tried more often than the library would do by itself, because its pause could
//     cost a leader its lease.
//   - A call ends with its context, and its error says why there is no connection.
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

	"penstock/settings/plain"
)

// Limits.
const (
	SessionMin    = 500 * time.Millisecond
	SessionMax    = 5 * time.Minute
	maxServers    = 16
	maxAuthBytes  = 1024                   // bytes of the file with the credentials
	retryInterval = 500 * time.Millisecond // between attempts to authenticate, or to send a call
	// After a connection is lost, all servers are tried in rounds. During the first lease there are
	// roundsPerSession rounds per session length. After that, or if a session is so long that these
	// rounds would be further apart than libraryPause, there is one round per libraryPause.
	roundsPerSession = 12
	libraryPause     = time.Second
	// logInterval is the least time between two log lines about a server that cannot be reached.
	logInterval = 10 * time.Second
)

// Lease returns how long a leader may lead after it sent a message that ZooKeeper's majority then
// acknowledged: two thirds of a session. The last third covers a server that reports the
// session's activity with a delay, of at most half a tick.
func Lease(session time.Duration) time.Duration { return session * 2 / 3 }

// Folder is the folder of brokers' znodes, unless the list of servers names another one.
const Folder = "/penstock"

// Options configures a connection.
type Options struct {
	// Servers is a list host:port,... of the ensemble, optionally followed by a folder:
	// zk1:2181,zk2:2181/clusters/a.
	Servers string
	// Auth is a file with user:password for ZooKeeper's digest scheme. Without these credentials,
	// the znodes can be neither read nor changed. If Auth is empty, the znodes are open to all
	// clients of ZooKeeper.
	Auth string
	// TLS returns the configuration for servers with a secure client port; nil: plain
	// connections. It is called for each connection, so new certificates are used without a
	// restart. The server's name is filled in.
	TLS func() *tls.Config
	// Session is the requested session length: how long the server waits for a silent broker.
	Session time.Duration
	Log     *slog.Logger
}

// Client is a session with ZooKeeper. Its methods may be called by several goroutines.
type Client struct {
	conn          *zk.Conn
	root          string
	acl           []zk.ACL
	open          bool // without credentials: all clients of ZooKeeper may change the znodes
	requested     time.Duration
	granted       atomic.Int64 // session length by the last handshake, in nanoseconds
	log           *slog.Logger
	events        chan struct{}
	authenticated chan struct{} // closed once the credentials are accepted
	closed        chan struct{}
	close         func()
	hosts         *hostProvider

	mu         sync.Mutex
	failures   map[string]connFailure // by server
	lastFailed string                 // the last server that could not be reached
}

// connFailure is the reason why a server could not be reached.
type connFailure struct {
	text     string    // empty: the server has been reached since
	logged   string    // the text as last logged; empty: nothing was logged since the last connection
	loggedAt time.Time // when it was logged
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

// Dial starts to connect and returns at once. The ensemble need not be reachable.
func Dial(o Options) (*Client, error) {
	servers, root, err := Parse(o.Servers)
	if err != nil {
		return nil, err
	}
	if o.Session < SessionMin || o.Session > SessionMax {
		return nil, fmt.Errorf("session of %v: use %v to %v", o.Session, SessionMin, SessionMax)
	}
	c := &Client{root: root, acl: zk.WorldACL(zk.PermAll), requested: o.Session, log: o.Log,
		events: make(chan struct{}, 1), authenticated: make(chan struct{}), closed: make(chan struct{}), failures: map[string]connFailure{}}
	c.hosts = &hostProvider{client: c}
	c.close = sync.OnceFunc(func() {
		close(c.closed)
		c.conn.Close()
	})
	var secret string
	if c.open = o.Auth == ""; c.open {
		o.Log.Warn("no --zookeeper-auth: all clients that can reach ZooKeeper can change the policy", "folder", root)
	} else {
		if secret, err = readAuth(o.Auth); err != nil {
			return nil, err
		}
		user, password, _ := strings.Cut(secret, ":")
		c.acl = zk.DigestACL(zk.PermAll, user, password)
	}
	c.conn, _, err = zk.Connect(servers, o.Session, zk.WithHostProvider(c.hosts), zk.WithLogInfo(false),
		zk.WithLogger(debugLogger{o.Log}), zk.WithEventCallback(func(e zk.Event) {
			if e.Type == zk.EventSession {
				notify(c.events)
			}
		}),
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			return c.dial(network, address, timeout, o.TLS)
		}))
	if err != nil {
		return nil, err
	}
	if secret == "" {
		close(c.authenticated)
	} else {
		go c.authenticate(secret)
	}
	return c, nil
}

// authenticate sends the credentials, until a server accepts them. The library then sends them
// again on each new connection. Calls wait for authenticate.
func (c *Client) authenticate(secret string) {
	for {
		err := c.conn.AddAuth("digest", []byte(secret))
		if err == nil {
			close(c.authenticated)
			return
		}
		c.log.Warn("ZooKeeper has not accepted the credentials yet; retrying", "error", err)
		select {
		case <-c.closed:
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

// Session returns how long the server waits for this broker before it ends the session: the shorter
// one of the requested and the granted length.
func (c *Client) Session() time.Duration {
	if given := time.Duration(c.granted.Load()); given > 0 {
		return min(given, c.requested)
	}
	return c.requested
}

// sessionGranted notes the session length from a server's handshake.
func (c *Client) sessionGranted(address string, given time.Duration) {
	c.mu.Lock()
	c.failures[address] = connFailure{loggedAt: c.failures[address].loggedAt}
	c.lastFailed = ""
	c.mu.Unlock()
	if old := c.granted.Swap(int64(given)); old == int64(given) || given == c.requested {
		return
	}
	c.log.Warn("ZooKeeper granted a session of another length, because of its tickTime or session timeout limits", "requested", c.requested, "granted", given)
}

// Events receives a value when the session's state has changed.
func (c *Client) Events() <-chan struct{} { return c.events }

// SessionID returns the id of the session; 0 if there is none.
func (c *Client) SessionID() int64 { return c.conn.SessionID() }

// Path returns the path of a znode in the brokers' folder.
func (c *Client) Path(names ...string) string { return c.root + "/" + strings.Join(names, "/") }

// Close ends the session. Its ephemeral znodes are removed at once.
func (c *Client) Close() { c.close() }

// unanswered is the error of a call that ended without an answer.
func (c *Client) unanswered(cause error) error {
	what := "no answer from ZooKeeper in time"
	if errors.Is(cause, context.Canceled) {
		what = "interrupted: no answer from ZooKeeper yet"
	}
	if why := c.lastFailure(); why != "" {
		what += " (" + why + ")"
	}
	return &plain.Error{What: what, Cause: cause}
}

// callWithContext makes a call to the library, whose functions take no context. If the call was not
// sent, because no server was connected, it is repeated. An abandoned call ends when the library
// connects or pauses.
func callWithContext[T any](ctx context.Context, c *Client, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		select {
		case <-c.authenticated:
			v, err := call()
			for errors.Is(err, zk.ErrNoServer) && sleep(ctx, retryInterval) {
				v, err = call()
			}
			done <- result{v, err}
		case <-c.closed:
			done <- result{err: zk.ErrClosing}
		case <-ctx.Done():
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, c.unanswered(ctx.Err())
	}
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Node is the data of a znode, and its version.
type Node struct {
	Data         []byte
	Version      int32
	Owner        int64 // session of an ephemeral znode
	ModifiedZxid int64 // transaction that last changed it
}

// Get reads a znode.
func (c *Client) Get(ctx context.Context, path string) (Node, error) {
	return callWithContext(ctx, c, func() (Node, error) {
		data, stat, err := c.conn.Get(path)
		return node(data, stat), err
	})
}

// Watched is a znode with a channel that receives its next change.
type Watched struct {
	Node
	Next <-chan zk.Event
}

// Watch reads a znode and watches it. Each successful call adds a watch, which lasts until the
// znode changes.
func (c *Client) Watch(ctx context.Context, path string) (Watched, error) {
	return callWithContext(ctx, c, func() (Watched, error) {
		data, stat, changed, err := c.conn.GetW(path)
		return Watched{node(data, stat), changed}, err
	})
}

func node(data []byte, stat *zk.Stat) Node {
	if stat == nil {
		return Node{}
	}
	return Node{Data: data, Version: stat.Version, Owner: stat.EphemeralOwner, ModifiedZxid: stat.Mzxid}
}

// GetLatest is Get after a sync, so that it returns what the ensemble has agreed on, and not an
// older state of one server.
func (c *Client) GetLatest(ctx context.Context, path string) (Node, error) {
	if _, err := callWithContext(ctx, c, func() (string, error) { return c.conn.Sync(path) }); err != nil {
		return Node{}, err
	}
	return c.Get(ctx, path)
}

// Children lists a znode's children.
func (c *Client) Children(ctx context.Context, path string) ([]string, error) {
	return callWithContext(ctx, c, func() ([]string, error) {
		names, _, err := c.conn.Children(path)
		return names, err
	})
}

// Create makes a znode and returns its full path. flags are those of package zk.
func (c *Client) Create(ctx context.Context, path string, data []byte, flags int32) (string, error) {
	return callWithContext(ctx, c, func() (string, error) { return c.conn.Create(path, data, flags, c.acl) })
}

// Ensure makes znodes that do not exist, and their parents, without data.
func (c *Client) Ensure(ctx context.Context, paths ...string) error {
	for _, p := range paths {
		for i := 1; i <= len(p); i++ {
			if i < len(p) && p[i] != '/' {
				continue
			}
			if _, err := c.Create(ctx, p[:i], nil, 0); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				// A broker may have no permission above its own folder.
				if errors.Is(err, zk.ErrNoAuth) && i < len(c.root) {
					continue
				}
				return fmt.Errorf("create %s in ZooKeeper: %w", p[:i], err)
			}
		}
	}
	return nil
}

// Delete removes a znode of any version.
func (c *Client) Delete(ctx context.Context, path string) error {
	_, err := callWithContext(ctx, c, func() (struct{}, error) { return struct{}{}, c.conn.Delete(path, -1) })
	return err
}

// Multi performs all operations or none. On failure, failed is the index of the first operation
// that failed, and err is its error; failed is -1 if the operation is not known.
func (c *Client) Multi(ctx context.Context, changes ...any) (failed int, err error) {
	results, err := callWithContext(ctx, c, func() ([]zk.MultiResponse, error) { return c.conn.Multi(changes...) })
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

// CheckOp is an operation for Multi that requires a znode to exist and, unless version is -1, to
// have the version.
func CheckOp(path string, version int32) any {
	return &zk.CheckVersionRequest{Path: path, Version: version}
}

// SetOp is an operation for Multi that sets the data of a znode, if it has the version or version
// is -1.
func SetOp(path string, data []byte, version int32) any {
	return &zk.SetDataRequest{Path: path, Data: data, Version: version}
}

// CreateOp is an operation for Multi that makes a znode.
func (c *Client) CreateOp(path string, data []byte) any {
	return &zk.CreateRequest{Path: path, Data: data, Acl: c.acl}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// debugLogger passes the library's messages to the debug log.
type debugLogger struct{ log *slog.Logger }

func (q debugLogger) Printf(format string, args ...any) {
	q.log.Debug("zookeeper", "says", fmt.Sprintf(format, args...))
}
