package applications

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxBody is the maximum size of an answer, in bytes: 64 KiB for each application of a page.
	maxBody = 64 << 20
	// answerTimeout is the maximum time until the last byte of an answer.
	answerTimeout = 30 * time.Second
	maxServers    = 16
	// connectTimeout is the maximum time to connect. It can be short, because the kernel accepts
	// the connection even if the server itself is slow. So an unreachable machine is noticed
	// earlier than a slow server.
	connectTimeout = 5 * time.Second
	idleTimeout    = time.Minute
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
	active   atomic.Int32
	answered atomic.Bool
	busy     time.Duration // how long requests kept servers busy since the last call of takeBusyTime
}

var (
	errNotFound    = errors.New("not found")
	errBodyTooLong = errors.New("the answer is too long")
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

func newServers(addresses []string) (*servers, error) {
	if len(addresses) > maxServers {
		return nil, fmt.Errorf("%d addresses: at most %d", len(addresses), maxServers)
	}
	s := &servers{timeout: answerTimeout, maxBody: maxBody}
	for _, address := range addresses {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
			return nil, fmt.Errorf("%q: give http://host:port or https://host:port", address)
		}
		s.bases = append(s.bases, u)
	}
	s.http = &http.Client{
		Transport: &http.Transport{Proxy: nil, DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext,
			MaxIdleConnsPerHost: 1, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

func (s *servers) address() string {
	if !s.answered.Load() {
		return ""
	}
	return s.bases[s.active.Load()].Redacted()
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
	resp, err := s.http.Do(req)
	if err != nil {
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
			err = errNotActive{err}
		}
		return err
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusNotFound:
		return errNotFound
	case code == http.StatusUnauthorized:
		return fmt.Errorf("%s: it requires authentication (Kerberos), which the broker does not support", base.Host)
	case code/100 == 3:
		return errNotActive{fmt.Errorf("%s is a standby%s", base.Host, s.redirectNote(base, resp))}
	case code == http.StatusBadRequest:
		return errBadRequest{fmt.Errorf("%s: %s to %s", base.Host, resp.Status, path)}
	case code/100 != 2:
		return fmt.Errorf("%s: %s to %s", base.Host, resp.Status, path)
	}
	body := &cappedReader{r: resp.Body, left: s.maxBody}
	if err := read(json.NewDecoder(body)); err != nil {
		switch {
		case errors.Is(err, errBodyTooLong):
			err = fmt.Errorf("%w: over %d bytes", errBodyTooLong, s.maxBody)
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

// cappedReader fails after too many bytes, where io.LimitReader would report the end of the input.
type cappedReader struct {
	r    io.Reader
	left int64
}

func (b *cappedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errBodyTooLong
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// object reads an object and calls member for each name. It skips a value that member did not
// read.
func object(d *json.Decoder, member func(name string) (read bool, err error)) error {
	t, err := d.Token()
	switch {
	case err != nil:
		return err
	case t == nil || t == "": // null, or an empty object as some serializers write it
		return nil
	case t != json.Delim('{'):
		return fmt.Errorf("%.40q, expected an object", fmt.Sprint(t))
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		read, err := member(name)
		if err != nil {
			return err
		}
		if !read {
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return err
			}
		}
	}
	_, err = d.Token()
	return err
}

// array reads an array and calls element for each element.
func array(d *json.Decoder, element func() error) error {
	t, err := d.Token()
	switch {
	case err != nil:
		return err
	case t == nil:
		return nil
	case t != json.Delim('['):
		return fmt.Errorf("%.40q, expected a list", fmt.Sprint(t))
	}
	for d.More() {
		if err := element(); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// clip returns a copy of the beginning of a string, as valid UTF-8.
func clip(s string, most int) string {
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), most)], ""))
}
