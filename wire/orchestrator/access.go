package orchestrator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Access says how a server is asked. Its files are read again for each request, because tokens are replaced
// while programs run. No error and no log line has anything of their contents.
type Access struct {
	// CA is a PEM file with the certificate authorities of the server; empty: the machine's own.
	CA string
	// ServerName is the name in the server's certificate; empty: that of the URL.
	ServerName string
	// TokenFile has a bearer token, as Kubernetes has it.
	TokenFile string
	// CredentialFile has a principal and a secret, separated by white space, as Mesos has it.
	CredentialFile string
}

const (
	maxSecret      = 64 << 10 // bytes of a file with a token or a credential
	maxAuthorities = 8 << 20  // bytes of a file with certificates
	connectTimeout = 5 * time.Second
	idleTimeout    = time.Minute
	fileTimeout    = 2 * time.Second
)

// ErrSlowFile means that a file with a token, a credential or certificates was not read within fileTimeout, so the server
// was not asked.
var ErrSlowFile = fmt.Errorf("the file was not read within %v: is it on a file system that hangs (NFS)? Keep it on a disk of this machine", fileTimeout)

// CheckURL checks the address of a server.
func (a Access) CheckURL(address string) error {
	u, err := url.Parse(address)
	wrong := err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != ""
	switch {
	case err == nil && u.User != nil:
		return fmt.Errorf("the URL of %s has a password: put it into a file", u.Host)
	case wrong && strings.Contains(address, "@"): // not shown, as it may have a password
		return errors.New("the URL cannot be read: give http://HOST:PORT/PATH or https://HOST:PORT/PATH, and a password in a file")
	case wrong:
		return fmt.Errorf("%.200q: give http://HOST:PORT/PATH or https://HOST:PORT/PATH", address)
	case u.Scheme == "http" && a.TokenFile != "":
		return fmt.Errorf("%.200q: a token is sent over https only", address)
	case u.Scheme == "http" && (a.CA != "" || a.ServerName != ""):
		return fmt.Errorf("%.200q: only https has certificates", address)
	case u.Scheme == "http" && a.CredentialFile != "" && !loopback(u.Hostname()):
		return fmt.Errorf("%.200q: a credential is sent over https, or to this machine", address)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Client returns a client for the server. It follows no redirect: a redirect may name any host, which would get
// the token.
func (a Access) Client() (*http.Client, error) {
	transport := &http.Transport{Proxy: nil, DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext, TLSHandshakeTimeout: connectTimeout,
		MaxIdleConnsPerHost: 1, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: 64 << 10,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.ServerName}}
	if a.CA != "" {
		pool, err := a.authorities()
		if err != nil {
			return nil, err
		}
		transport.DialTLSContext = a.dialer(pool)
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// authorities reads the certificates of the authorities.
func (a Access) authorities() (*x509.CertPool, error) {
	text, err := ownFiles.read(a.CA, maxAuthorities)
	if err != nil {
		return nil, fmt.Errorf("certificates of authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("certificates of authorities: %s has no PEM certificate", a.CA)
	}
	return pool, nil
}

// dialer returns a function that connects to the server and verifies it by the authorities that are in the file at that
// time. If the file cannot be read, those that were read last stay in use.
func (a Access) dialer(pool *x509.CertPool) func(ctx context.Context, network, address string) (net.Conn, error) {
	var mu sync.Mutex
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		if now, err := a.authorities(); err == nil {
			pool = now
		}
		config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.ServerName, RootCAs: pool}
		mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, 2*connectTimeout)
		defer cancel()
		return (&tls.Dialer{NetDialer: &net.Dialer{Timeout: connectTimeout}, Config: config}).DialContext(ctx, network, address)
	}
}

// Authorize adds the token or the credential to a request.
func (a Access) Authorize(r *http.Request) error {
	if a.TokenFile != "" {
		token, err := secret(a.TokenFile)
		if err != nil {
			return err
		}
		if len(token) != 1 {
			return fmt.Errorf("%s: expected one token without white space", a.TokenFile)
		}
		r.Header.Set("Authorization", "Bearer "+token[0])
	}
	if a.CredentialFile != "" {
		words, err := secret(a.CredentialFile)
		if err != nil {
			return err
		}
		if len(words) != 2 {
			return fmt.Errorf("%s: expected a principal and a secret, separated by a space", a.CredentialFile)
		}
		r.SetBasicAuth(words[0], words[1])
	}
	return nil
}

// files reads files with a bound on the time. A system call on a file system that hangs cannot be ended, so its goroutine
// waits on; but there is at most one for each file.
type files struct {
	open  func(file string, most int64) ([]byte, error)
	limit time.Duration

	mu      sync.Mutex
	pending map[string]*reading
}

// reading is a read of a file. The fields are set when done is closed.
type reading struct {
	done chan struct{}
	text []byte
	err  error
}

var ownFiles = files{open: read, limit: fileTimeout}

// read returns the text of an ordinary file of at most so many bytes. If an earlier read of the file has not returned,
// the result is that of the earlier read. It returns ErrSlowFile when the limit has passed.
func (f *files) read(file string, most int64) ([]byte, error) {
	f.mu.Lock()
	r := f.pending[file]
	if r == nil {
		r = &reading{done: make(chan struct{})}
		if f.pending == nil {
			f.pending = map[string]*reading{}
		}
		f.pending[file] = r
		go func() {
			r.text, r.err = f.open(file, most)
			f.mu.Lock()
			delete(f.pending, file)
			f.mu.Unlock()
			close(r.done)
		}()
	}
	f.mu.Unlock()
	limit := time.NewTimer(f.limit)
	defer limit.Stop()
	select {
	case <-r.done:
		return r.text, r.err
	case <-limit.C:
		return nil, fmt.Errorf("%s: %w", file, ErrSlowFile)
	}
}

// read returns the text of an ordinary file of at most so many bytes.
func read(file string, most int64) ([]byte, error) {
	// To open a pipe without a writer would take for ever.
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is no ordinary file: it is read again and again, so give a file that stays", file))
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s: more than %d bytes", file, most)
	}
	return text, nil
}

// secret returns the words of a small text file.
func secret(file string) ([]string, error) {
	text, err := ownFiles.read(file, maxSecret)
	if err != nil {
		return nil, err
	}
	for _, c := range text {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c > '~' {
			return nil, fmt.Errorf("%s: a byte that is no printable ASCII character", file)
		}
	}
	return strings.Fields(string(text)), nil
}

// StatusError returns what is wrong if a server has answered with another code than 200; nil otherwise.
func (a Access) StatusError(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		return nil
	case code == http.StatusUnauthorized && a.TokenFile == "" && a.CredentialFile == "":
		return errors.New("401: the server requires authentication: give a file with a token or a credential")
	case code == http.StatusUnauthorized:
		return errors.New("401: the server does not accept the token or the credential: is it from this cluster, and has it expired?")
	case code == http.StatusForbidden:
		return errors.New("403: the account has no right to read this (Kubernetes: get nodes/proxy or nodes/pods for a kubelet, list pods for the API server; Mesos: the ACLs that show frameworks, executors and tasks)")
	case code == http.StatusNotFound:
		return errors.New("404: there is no such page: check the path of the URL")
	case code/100 == 3:
		return fmt.Errorf("%d: the server names another address, which is not followed: give that address itself, if it is the right server", code)
	}
	// The server's own words may be long, so they are not repeated.
	return fmt.Errorf("the server answers with %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}
