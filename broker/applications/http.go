package applications

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"penstock/broker/kerberos"
	"penstock/wire/jsonstream"
	"penstock/wire/orchestrator"
)

const (
	// maxBody is the maximum size of an answer, in bytes: 64 KiB for each application of a page.
	maxBody = 64 << 20
	// answerTimeout is the maximum time until the last byte of an answer.
	answerTimeout = 30 * time.Second
	maxServers    = 16
)

// servers are the servers of one cluster manager; one of them is active. Requests go to the last
// active server first, and to the others in turn if that server is not active or does not answer.
//
// Redirects of a standby are not followed: they may name any host, and the active server is on
// the list. A standby may take seconds to answer, while it looks for the active server itself.
type servers struct {
	http     *http.Client
	bases    []*url.URL
	timeout  time.Duration
	maxBody  int64
	access   *orchestrator.Access // of Kubernetes and Mesos; nil: the client itself authenticates, if necessary
	active   atomic.Int32
	answered atomic.Bool
	busy     time.Duration // how long requests kept servers busy since the last call of takeBusyTime
}

var (
	errNotFound = errors.New("not found")
	// errNoneActive means that all of several servers are standbys or unreachable. This may
	// change at any moment.
	errNoneActive = errors.New("no server is active")
)

// errNotActive is the error of a server that did not process the request: a standby, or an
// unreachable server.
type errNotActive struct{ error }

func (e errNotActive) Unwrap() error { return e.error }

// errBadRequest means that an active server refused the request itself.
type errBadRequest struct{ error }

func newServers(addresses []string, access kerberos.Access) (*servers, error) {
	if len(addresses) > maxServers {
		return nil, fmt.Errorf("%d addresses: at most %d", len(addresses), maxServers)
	}
	s := &servers{timeout: answerTimeout, maxBody: maxBody}
	for _, address := range addresses {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
			if strings.Contains(address, "@") { // not shown, as it may have a password
				return nil, errors.New("the URL has a password or cannot be read: give http://host:port or https://host:port, without a user")
			}
			return nil, fmt.Errorf("%q: give http://host:port or https://host:port", address)
		}
		s.bases = append(s.bases, u)
	}
	client, err := access.Client(s.bases...)
	if err != nil {
		return nil, err
	}
	s.http = client
	return s, nil
}

// proxy returns the same servers for requests to their proxies by another goroutine. Both have the same connections and, with
// Kerberos, the same cookies.
func (s *servers) proxy() *servers {
	return &servers{http: s.http, bases: s.bases, timeout: proxyTimeout, maxBody: proxyMaxBody}
}

// use makes requests carry a token or a credential, and verifies certificates as access says.
func (s *servers) use(access orchestrator.Access) error {
	for _, base := range s.bases {
		if err := access.CheckURL(base.String()); err != nil {
			return err
		}
	}
	client, err := access.Client()
	if err != nil {
		return err
	}
	s.http, s.access = client, &access
	return nil
}

// address returns the address of the server that answered last, without the query.
func (s *servers) address() string {
	if !s.answered.Load() {
		return ""
	}
	base := *s.bases[s.active.Load()]
	base.RawQuery = ""
	return base.String()
}

// takeBusyTime returns how long requests have kept a server busy since the last call. For an
// answered request, this is the time of the answering server; otherwise it is the time of all
// servers that may have worked on the request.
func (s *servers) takeBusyTime() time.Duration {
	busy := s.busy
	s.busy = 0
	return busy
}

// freshConnection makes the next request use a new connection. On an old connection, it would take
// answerTimeout to notice that the machine is unreachable.
func (s *servers) freshConnection() { s.http.CloseIdleConnections() }

// get requests a document and calls read for it, beginning with the active server. The base URL of
// a server may contain a query, such as user.name.
func (s *servers) get(ctx context.Context, path string, query url.Values, read func(*json.Decoder) error) error {
	var errs []error
	var busy time.Duration
	none := true
	first := int(s.active.Load())
	for i := range s.bases {
		at := (first + i) % len(s.bases)
		begin := time.Now()
		err := s.getFrom(ctx, s.bases[at], path, query, read)
		took := time.Since(begin)
		var bad errBadRequest
		var idle errNotActive
		if err == nil || errors.Is(err, errNotFound) || errors.As(err, &bad) {
			s.active.Store(int32(at))
			s.answered.Store(true)
			s.busy += took
			return err
		}
		if !errors.As(err, &idle) {
			busy += took
			none = false
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	s.busy += busy
	if none && len(s.bases) > 1 {
		return fmt.Errorf("%w: %w", errNoneActive, errors.Join(errs...))
	}
	return errors.Join(errs...)
}

func (s *servers) getFrom(ctx context.Context, base *url.URL, path string, query url.Values, read func(*json.Decoder) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	u := base.JoinPath(path)
	all := base.Query()
	for k, v := range query {
		all[k] = v
	}
	u.RawQuery = all.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if s.access != nil {
		if err := s.access.Authorize(req); err != nil {
			return err
		}
	}
	resp, err := s.http.Do(req)
	if err != nil {
		var wrapped *url.Error // it has the whole query
		if errors.As(err, &wrapped) {
			err = fmt.Errorf("%s: %s: %w", base.Host, path, wrapped.Err)
		}
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
			err = errNotActive{err}
		}
		return err
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusNotFound:
		return errNotFound
	case (code == http.StatusUnauthorized || code == http.StatusForbidden) && s.access != nil:
		return fmt.Errorf("%s: %w", base.Host, s.access.StatusError(resp))
	case code/100 == 3:
		return errNotActive{fmt.Errorf("%s is a standby%s", base.Host, s.redirectNote(base, resp))}
	case code == http.StatusBadRequest:
		return errBadRequest{fmt.Errorf("%s: %s to %s", base.Host, resp.Status, path)}
	case code/100 != 2:
		return fmt.Errorf("%s: %s to %s", base.Host, resp.Status, path)
	}
	body := &jsonstream.Capped{R: resp.Body, Left: s.maxBody}
	if err := read(json.NewDecoder(body)); err != nil {
		switch {
		case errors.Is(err, jsonstream.ErrTooLong):
			err = fmt.Errorf("%w: over %d bytes", jsonstream.ErrTooLong, s.maxBody)
		case ctx.Err() != nil:
			err = fmt.Errorf("the answer took more than %v: %w", s.timeout, err)
		}
		return fmt.Errorf("%s: %s: %w", base.Host, path, err)
	}
	return nil
}

// redirectNote describes where a redirect leads, if that is not one of the servers.
func (s *servers) redirectNote(from *url.URL, resp *http.Response) string {
	to, err := resp.Location()
	if err != nil {
		return " and knows no active server"
	}
	for _, b := range s.bases {
		if b != from && strings.EqualFold(b.Host, to.Host) {
			return ""
		}
	}
	return fmt.Sprintf(" and names %.100q as active, which is not among the addresses: add it if it is a server of this cluster", to.Host)
}
