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
	// maxBody is the largest answer: of a page of YARN's 64 KiB an application.
	maxBody = 64 << 20
	// answerTime is how long an answer may take, to its last byte.
	answerTimeout = 30 * time.Second
	maxServers    = 16
	// connectTime is how long a server's machine may take to accept a connection, which its
	// kernel does: a machine that is gone is not to be waited for as one that is slow.
	connectTimeout = 5 * time.Second
	idleTimeout    = time.Minute
)

// servers are those of one cluster manager, of which one is active: it is asked first, the
// others in turn when it does not answer as an active one does.
//
// A standby's redirect is not followed: it may name any host, also one that nobody has
// configured, and the active one is in the list. A standby may take seconds to answer, while it
// looks for an active one itself.
type servers struct {
	http     *http.Client
	bases    []*url.URL
	timeout  time.Duration
	maxBody  int64
	active   atomic.Int32
	answered atomic.Bool
	busy     time.Duration // since spent was asked for
}

var (
	errNotFound    = errors.New("not known there")
	errBodyTooLong = errors.New("the answer is too long")
	// errNoneActive: all of several said so or were not reached. It may change at any moment.
	errNoneActive = errors.New("none is active")
)

// errNotActive is of a server that has no work with the question: a standby, or one that is
// not reached.
type errNotActive struct{ error }

func (e errNotActive) Unwrap() error { return e.error }

// errBadRequest is an active server's refusal of the question itself.
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

// spent is for how long a server has been kept busy by what was asked since the last call,
// by one goroutine. Of what was answered, that is the time of the one that did; else of those
// that may have been at work on it.
func (s *servers) takeBusyTime() time.Duration {
	busy := s.busy
	s.busy = 0
	return busy
}

// renew has what follows begin with a new connection: one that stays would hide for answerTime
// that there is no machine any more.
func (s *servers) freshConnection() { s.http.CloseIdleConnections() }

// get asks for one document and has it read, from the active server if there is one. An
// address may have a query of its own, such as user.name.
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
		return fmt.Errorf("%s: it wants to be told who asks (Kerberos), which the broker cannot", base.Host)
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

// instead is where a redirect leads to, if that is none of ours.
func (s *servers) redirectNote(from *url.URL, resp *http.Response) string {
	to, err := resp.Location()
	if err != nil {
		return " and knows of no active one"
	}
	for _, b := range s.bases {
		if b != from && strings.EqualFold(b.Host, to.Host) {
			return ""
		}
	}
	return fmt.Sprintf(" and names %.100q, which is not among the addresses: add it if it is right", to.Host)
}

// bounded fails past what is left, where io.LimitReader would say that all was read.
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

// object goes through an object's members; each is read by its function, or skipped.
func object(d *json.Decoder, member func(name string) (read bool, err error)) error {
	t, err := d.Token()
	switch {
	case err != nil:
		return err
	case t == nil || t == "": // null, or what some serializers make of an empty one
		return nil
	case t != json.Delim('{'):
		return fmt.Errorf("%.40q where an object is expected", fmt.Sprint(t))
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

// array goes through an array's elements.
func array(d *json.Decoder, element func() error) error {
	t, err := d.Token()
	switch {
	case err != nil:
		return err
	case t == nil:
		return nil
	case t != json.Delim('['):
		return fmt.Errorf("%.40q where a list is expected", fmt.Sprint(t))
	}
	for d.More() {
		if err := element(); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// clip keeps what a string may have of memory.
func clip(s string, most int) string {
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), most)], ""))
}
