package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"penstock/broker/kerberos"
	"penstock/settings/plain"
)

// site is a web interface of Hadoop.
type site struct {
	url    string
	client *http.Client
	err    error // why it cannot be asked: the access is wrong
}

// openSite returns the site at an address.
func openSite(address string, access kerberos.Access) site {
	s := site{url: strings.TrimSuffix(address, "/")}
	u, err := url.Parse(s.url)
	if err != nil {
		s.err = err
		return s
	}
	if u.Scheme == "http" { // the certificates are for the others
		access.CA, access.Cert, access.Key = "", "", ""
	}
	s.client, s.err = access.Client(u)
	return s
}

// close closes the connections of a site.
func (s site) close() {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
}

// statusError is the error of an answer without the requested contents.
type statusError struct {
	code   int
	status string
}

func (e statusError) Error() string { return fmt.Sprintf("it answers %q", e.status) }

// get returns a page.
func (s site) get(ctx context.Context, path string) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(req)
	if e := (*kerberos.Error)(nil); errors.As(err, &e) {
		return nil, e
	}
	if err != nil { // the outer error repeats the whole request
		return nil, &plain.Error{What: plain.NetworkCause(err), Cause: err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, statusError{resp.StatusCode, resp.Status}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("its answer has over %d bytes", maxAnswer)
	}
	return body, err
}

// askResourceManager asks a ResourceManager first without a ticket, and then as the given principal.
func askResourceManager(ctx context.Context, address string, access kerberos.Access) ResourceManager {
	const page = "/ws/v1/cluster/info" // a standby answers it, too
	m := ResourceManager{URL: strings.TrimSuffix(address, "/"), Principal: access.Principal}
	ask := func(access kerberos.Access) error {
		s := openSite(address, access)
		defer s.close()
		m.Wrong = s.err != nil
		body, err := s.get(ctx, page)
		var answer struct{ ClusterInfo *struct{} }
		if err == nil && (json.Unmarshal(body, &answer) != nil || answer.ClusterInfo == nil) {
			return errors.New("something answers there, but it is not a ResourceManager")
		}
		if answered := (statusError{}); errors.As(err, &answered) && answered.code/100 == 3 {
			return nil // an older standby names the active one
		}
		return err
	}
	m.Err = ask(access.Anonymous())
	e := (*kerberos.Error)(nil)
	m.Asks = errors.As(m.Err, &e) && e.Asks
	if m.Asks && access != access.Anonymous() {
		m.Err = ask(access)
		m.Tried = true
	}
	return m
}
