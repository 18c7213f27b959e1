package kdc

import (
	"crypto/rand"
	"net/http"
	"sync"

	"github.com/jcmturner/goidentity/v6"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/service"
	"github.com/jcmturner/gokrb5/v8/spnego"
)

// Site is a web site that asks for Kerberos as Hadoop's sites do: whoever shows a ticket gets a cookie
// that replaces it.
type Site struct {
	inner http.Handler

	mu       sync.Mutex
	keys     *keytab.Keytab
	cookies  bool
	sessions map[string]string // users by cookie
	tickets  int
}

// UserHeader is the header of the request in which a site's own handler finds the user.
const UserHeader = "X-User"

// NewSite returns a site with the keys in a file.
func NewSite(file string, inner http.Handler) (*Site, error) {
	s := &Site{inner: inner, cookies: true, sessions: map[string]string{}}
	return s, s.Keys(file)
}

// Keys replaces the keys of the site.
func (s *Site) Keys(file string) error {
	keys, err := keytab.Load(file)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = keys
	return nil
}

// Forget makes all cookies invalid, as a restart does. Without cookies, each request needs a ticket from then on.
func (s *Site) Forget(cookies bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
	s.cookies = cookies
}

// Tickets returns the number of tickets that were accepted.
func (s *Site) Tickets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tickets
}

// ServeHTTP answers a request.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	keys, user := s.keys, ""
	if c, err := r.Cookie("hadoop.auth"); err == nil {
		user = s.sessions[c.Value]
	}
	s.mu.Unlock()
	if user != "" {
		s.serve(w, r, user)
		return
	}
	accepted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := goidentity.FromHTTPRequestContext(r).UserName()
		s.mu.Lock()
		s.tickets++
		if s.cookies {
			value := "u=" + user + "&t=kerberos&s=" + rand.Text()
			s.sessions[value] = user
			http.SetCookie(w, &http.Cookie{Name: "hadoop.auth", Value: value, Quoted: true, Path: "/", HttpOnly: true})
		}
		s.mu.Unlock()
		s.serve(w, r, user)
	})
	spnego.SPNEGOKRB5Authenticate(accepted, keys, service.DecodePAC(false)).ServeHTTP(w, r)
}

func (s *Site) serve(w http.ResponseWriter, r *http.Request, user string) {
	r = r.Clone(r.Context())
	r.Header.Set(UserHeader, user)
	s.inner.ServeHTTP(w, r)
}
