// Package web has what the HTTP servers for status and metrics share: an address or a Unix socket to listen at, a token that
// readers must have, and bounds on connections and requests. The pages name applications and users, so not everybody on a
// network should read them; and each page costs time, so readers must not keep a program busy.
package web

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"penstock/settings"
	"penstock/settings/plain"
)

// UnixPrefix begins the address of a Unix socket; the socket's path follows.
const UnixPrefix = "unix:"

const (
	// socketMode lets the owner and the group read the pages.
	socketMode = 0o660
	// maxSocketPath is the maximum length of a Unix socket's path, in bytes.
	maxSocketPath = 107
	// Bounds of a token, in bytes.
	minToken, maxToken = 16, 1024
	// MaxRequests is the number of pages that are made at a time.
	MaxRequests = 8
)

// CheckAddress checks the form of an address, host:port or unix:PATH.
func CheckAddress(address string) error {
	path, unix := strings.CutPrefix(address, UnixPrefix)
	if unix {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > maxSocketPath {
			return fmt.Errorf("%q: give unix: and the absolute path of a socket, of at most %d bytes", address, maxSocketPath)
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%q: give HOST:PORT, such as 127.0.0.1:9707, or unix:PATH", address)
	}
	return nil
}

// Listen listens at an address. A Unix socket belongs to the program's user and, if the folder has the setgid bit, to the
// folder's group. Listen replaces a socket at which nobody listens any more. The error wraps syscall.EADDRINUSE if another
// program listens.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	path, unix := strings.CutPrefix(address, UnixPrefix)
	if !unix {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%s exists and is not a socket", path)
	}
	if c, err := (&net.Dialer{}).DialContext(ctx, "unix", path); err == nil {
		c.Close()
		return nil, &net.OpError{Op: "listen", Net: "unix", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	// Nobody may connect before the socket has its rights. So it is made in a folder that nobody else may enter.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, plain.File(err)
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // it has another name then
	}
	if err := errors.Join(os.Chmod(made, socketMode), os.Rename(made, path)); err != nil {
		l.Close()
		return nil, err
	}
	return named{l, path}, nil
}

// named is a listener at a socket that was renamed. Closing it removes the socket.
type named struct {
	net.Listener
	path string
}

// Addr implements net.Listener.
func (n named) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: n.path} }

// Close implements net.Listener.
func (n named) Close() error {
	err := n.Listener.Close()
	if err == nil {
		err = os.Remove(n.path)
	}
	return err
}

// Bound returns a listener's address in the form of CheckAddress.
func Bound(l net.Listener) string {
	if a, unix := l.Addr().(*net.UnixAddr); unix {
		return UnixPrefix + a.Name
	}
	return l.Addr().String()
}

// Token is a secret that readers of pages must have, from a file with one line. A changed file is in force at the next
// request; if it cannot be used, the token read before stays.
type Token struct {
	file string

	mu    sync.Mutex
	seen  string // fingerprint of the file when it was last read
	token string
}

// OpenToken reads a token. Users other than the file's owner and group must have no rights to the file.
func OpenToken(file string) (*Token, error) {
	t := &Token{file: file, seen: settings.Fingerprint(file)}
	var err error
	if t.token, err = ReadToken(file); err != nil {
		return nil, err
	}
	st, err := os.Stat(file)
	if err != nil {
		return nil, plain.File(err)
	}
	if st.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%s: all users may read it: run chmod 640 %s", file, file)
	}
	return t, nil
}

// ReadToken returns the token in a file. No error contains a part of it.
func ReadToken(file string) (string, error) {
	text, err := settings.Read(file, maxToken+2)
	if err != nil {
		return "", err
	}
	token := strings.TrimRight(string(text), "\r\n")
	if len(token) < minToken || len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: give one line of %d to %d printable characters without spaces, such as those of `openssl rand -hex 32`", file, minToken, maxToken)
	}
	return token, nil
}

func (t *Token) current() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := settings.Fingerprint(t.file); now != t.seen {
		t.seen = now
		if token, err := ReadToken(t.file); err == nil {
			t.token = token
		}
	}
	return t.token
}

// Authorized returns a handler that serves readers with the token only. A nil token serves all.
func (t *Token) Authorized(h http.Handler) http.Handler {
	if t == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer || subtle.ConstantTimeCompare([]byte(given), []byte(t.current())) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a token is required", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Few returns a handler that makes at most MaxRequests pages at a time. Further requests are refused.
func Few(h http.Handler) http.Handler {
	free := make(chan struct{}, MaxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case free <- struct{}{}:
			defer func() { <-free }()
			h.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
		}
	})
}

// TokenEnv is the environment variable that names the file with the token of the daemon that a command asks.
const TokenEnv = "PENSTOCK_TOKEN_FILE"

// Get requests a page of the server at an address, host:port or unix:PATH, with the token in the file that TokenEnv names.
// It follows no redirect, because the token is for this server only.
func Get(ctx context.Context, address, page string) (*http.Response, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	host := address
	if path, unix := strings.CutPrefix(address, UnixPrefix); unix {
		host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+page, nil)
	if err != nil {
		return nil, &AddressError{address}
	}
	if file := os.Getenv(TokenEnv); file != "" {
		token, err := ReadToken(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", TokenEnv, err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return client.Do(r)
}

// AddressError means that an address has the wrong form.
type AddressError struct{ Address string }

func (e *AddressError) Error() string {
	return fmt.Sprintf("address %q: give host:port, such as 127.0.0.1:9707, or unix:PATH", e.Address)
}
