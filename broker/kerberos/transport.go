package kerberos

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

const (
	// cookieName is the name of the cookie with which Hadoop recognises a user whom it has authenticated.
	cookieName = "hadoop.auth"
	maxCookie  = 4 << 10  // bytes; a longer one is not kept
	maxRefusal = 64 << 10 // bytes that are read of a refusal, so that its connection can be used again
)

// transport adds cookies and tickets to requests.
type transport struct {
	base  *http.Transport
	login *login           // nil: requests are anonymous
	hosts map[string]*host // by origin; only these servers get tickets and cookies
}

// host is a server that may get tickets.
type host struct {
	service string // HTTP/NAME

	mu     sync.Mutex
	cookie *http.Cookie
}

// CloseIdleConnections closes the connections that no request uses.
func (t *transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// RoundTrip sends a request. If the server asks for Kerberos, RoundTrip sends it again with a ticket.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	h := t.hosts[origin(r.URL)]
	resp, err := t.send(r, h.session(), "")
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	offers := resp.Header.Values("WWW-Authenticate")
	discard(resp)
	switch {
	case !negotiable(offers):
		return nil, noNegotiate(offers)
	case t.login == nil:
		return nil, &Error{Asks: true, Found: "it requires authentication (Kerberos)", Do: "give --kerberos-principal and --kerberos-keytab"}
	case h == nil:
		return nil, &Error{Asks: true, Found: "it requires authentication (Kerberos), which knows services by the names of their hosts", Do: "give the host's name in the URL, instead of its address"}
	}
	var refused *ticket
	for {
		ticket, err := t.login.ticket(r.Context(), h.service, refused)
		if err != nil {
			return nil, err
		}
		header, err := t.login.header(ticket)
		if err != nil {
			return nil, err
		}
		resp, err := t.send(r, nil, header)
		if err != nil {
			return nil, err
		}
		accepted := h.keep(resp, proxied(r) != "")
		if accepted || resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
			return resp, nil
		}
		discard(resp)
		// The service's key may have been replaced since the ticket was made.
		if refused != nil || !t.login.mayReplace(ticket) {
			return nil, t.login.refusal(h.service, resp.Status)
		}
		refused = ticket
	}
}

// send sends a copy of the request with a cookie and an Authorization header, if there are any.
func (t *transport) send(r *http.Request, cookie *http.Cookie, header string) (*http.Response, error) {
	r = r.Clone(r.Context())
	if cookie != nil {
		r.AddCookie(cookie)
	}
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	// In a secured cluster, the ResourceManager's proxy returns a warning instead of the page of another user's application, which
	// could attack a browser. This cookie says that the reader knows. Here, only a few numbers are read.
	if app := proxied(r); app != "" && t.login != nil {
		r.AddCookie(&http.Cookie{Name: "checked_" + app, Value: "true"})
	}
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, untrusted(err)
	}
	return resp, nil
}

// proxied returns the application whose own server answers a request through a proxy; empty: none. The ResourceManager's URL may
// have a path, too, so the proxy's path need not be at the beginning.
func proxied(r *http.Request) string {
	_, rest, ok := strings.Cut(r.URL.Path, "/proxy/")
	app, _, _ := strings.Cut(rest, "/")
	if !ok {
		return ""
	}
	return app
}

// session returns the cookie of the server; nil: there is none.
func (h *host) session() *http.Cookie {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cookie
}

// keep stores the cookie of an answer to a request with a ticket. It reports whether the server has
// accepted the ticket for certain. The cookie is not kept if an application may have chosen it: it could be a cookie of the
// application's user, as whom further requests would be made.
func (h *host) keep(resp *http.Response, fromApplication bool) (accepted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !fromApplication {
		h.cookie = nil
	}
	for _, c := range resp.Cookies() {
		if c.Name != cookieName || c.Value == "" || len(c.Value) > maxCookie {
			continue
		}
		accepted = true
		if !fromApplication {
			h.cookie = &http.Cookie{Name: c.Name, Value: c.Value, Quoted: c.Quoted}
		}
	}
	return accepted
}

// negotiable reports whether one of the offered kinds of authentication is Negotiate.
func negotiable(offers []string) bool {
	for _, offer := range offers {
		for one := range strings.SplitSeq(offer, ",") {
			if kind, _, _ := strings.Cut(strings.TrimSpace(one), " "); strings.EqualFold(kind, "Negotiate") {
				return true
			}
		}
	}
	return false
}

func discard(resp *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxRefusal))
	resp.Body.Close()
}
