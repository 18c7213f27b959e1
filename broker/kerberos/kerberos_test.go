package kerberos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/broker/certs"
	"penstock/lab/kdc"
	"penstock/lab/poll"
	"penstock/wire/cluster"
)

// patience bounds each wait for an event.
const patience = 20 * time.Second

func access(r *kdc.Realm) Access {
	return Access{Principal: "penstock", Keytab: r.User, Config: r.Config}
}

// configOf writes another krb5.conf.
func configOf(t *testing.T, r *kdc.Realm, old, new string) string {
	t.Helper()
	text, err := os.ReadFile(r.Config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "krb5.conf")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), old, new)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// echo answers with the user's name and, for a page of an application, sets a cookie.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/proxy/application_1_0001/" {
		if c, err := r.Cookie("checked_application_1_0001"); err != nil || c.Value != "true" {
			fmt.Fprint(w, "warning: ")
		}
		http.SetCookie(w, &http.Cookie{Name: "hadoop.auth", Value: "of the application"})
	}
	fmt.Fprint(w, r.Header.Get(kdc.UserHeader))
}

func clientFor(t *testing.T, a Access, addresses ...string) *http.Client {
	t.Helper()
	var bases []*url.URL
	for _, address := range addresses {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		bases = append(bases, u)
	}
	c, err := a.Client(bases...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// get returns the status and the text of a page.
func get(t *testing.T, c *http.Client, address string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(text)), err
}

func want(t *testing.T, c *http.Client, address, answer string) {
	t.Helper()
	if got, err := get(t, c, address); got != answer || err != nil {
		t.Errorf("%q, %v; want %q", got, err, answer)
	}
}

// fails expects an error that says what is wrong and what to do.
func fails(t *testing.T, c *http.Client, address, found, do string) {
	t.Helper()
	got, err := get(t, c, address)
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%q, %v; want an error with %q", got, err, found)
		return
	}
	if !strings.Contains(e.Found, found) || !strings.Contains(e.Do, do) {
		t.Errorf("found %q, do %q; want %q, %q", e.Found, e.Do, found, do)
	}
}

func loginOf(c *http.Client) *login { return c.Transport.(*transport).login }

// Of many requests, only the first one needs a ticket, and only one ticket comes from the KDC.
func TestTicketAndCookie(t *testing.T) {
	r := kdc.ForTest(t, "")
	site, address := r.Site(t, http.HandlerFunc(echo))
	c := clientFor(t, access(r), address)
	for range 3 {
		want(t, c, address, "200 penstock")
	}
	if n := site.Tickets(); n != 1 {
		t.Errorf("%d tickets for three requests", n)
	}
	// The KDC is away, and the server has forgotten its cookies.
	r.Kill()
	site.Forget(true)
	want(t, c, address, "200 penstock")
	site.Forget(false)
	want(t, c, address, "200 penstock")
	want(t, c, address, "200 penstock")
	if n := site.Tickets(); n != 4 {
		t.Errorf("%d tickets", n)
	}
	fails(t, clientFor(t, access(r), address), address, "no KDC of the realm PENSTOCK.TEST answers", "krb5.conf")
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, clientFor(t, access(r), address), address, "200 penstock")
	fails(t, clientFor(t, access(r).Anonymous(), address), address, "requires authentication (Kerberos)", "--kerberos-principal")
}

// Keys may be only of the newest kinds of encryption.
func TestKindsOfEncryption(t *testing.T) {
	r := kdc.ForTest(t, "")
	_, address := r.Site(t, http.HandlerFunc(echo))
	for _, kind := range []string{"aes256-cts-hmac-sha384-192", "aes128-cts-hmac-sha256-128", "aes256-cts-hmac-sha1-96", "aes128-cts-hmac-sha1-96"} {
		file := filepath.Join(r.Dir, kind)
		r.Export(t, file, "-e "+kind+":normal penstock")
		a := access(r)
		a.Keytab = file
		want(t, clientFor(t, a, address), address, "200 penstock")
	}
}

// The servers may be in a realm that trusts the user's.
func TestAnotherRealm(t *testing.T) {
	r := kdc.ForTest(t, "")
	if err := r.Delete(t.Context(), "HTTP/localhost"); err != nil {
		t.Fatal(err)
	}
	other := r.Another(t, "OTHER.TEST")
	_, address := other.Site(t, http.HandlerFunc(echo))
	a := access(r)
	a.Config = configOf(t, r, "[realms]", "[domain_realm]\n localhost = OTHER.TEST\n[realms]\n OTHER.TEST = {\n  kdc = "+other.Address+"\n }")
	want(t, clientFor(t, a, address), address, "200 penstock")
	fails(t, clientFor(t, access(r), address), address, "does not know the service HTTP/localhost", "[domain_realm]")
	other.Kill()
	fails(t, clientFor(t, a, address), address, "no KDC of the realm OTHER.TEST answers", "port 88")
}

// The KDC is asked by UDP, too, unless krb5.conf prefers TCP.
func TestUDP(t *testing.T) {
	r := kdc.ForTest(t, "")
	_, address := r.Site(t, http.HandlerFunc(echo))
	a := access(r)
	a.Config = configOf(t, r, " udp_preference_limit = 1\n", "")
	want(t, clientFor(t, a, address), address, "200 penstock")
	r.Kill()
	fails(t, clientFor(t, a, address), address, "no KDC of the realm PENSTOCK.TEST answers", "port 88")
}

// The cookies of pages that an application answers are not used for other requests.
func TestPagesOfApplications(t *testing.T) {
	r := kdc.ForTest(t, "")
	site, address := r.Site(t, http.HandlerFunc(echo))
	c := clientFor(t, access(r), address)
	for range 2 {
		want(t, c, address+"/proxy/application_1_0001/", "200 penstock")
	}
	want(t, c, address, "200 penstock")
	for range 2 {
		want(t, c, address+"/proxy/application_1_0001/", "200 penstock")
		want(t, c, address, "200 penstock")
	}
	if n := site.Tickets(); n != 3 {
		t.Errorf("%d tickets: two for an application's pages, and one for the server's own", n)
	}
}

func TestFailuresSayWhatToDo(t *testing.T) {
	r := kdc.ForTest(t, "")
	_, address := r.Site(t, http.HandlerFunc(echo))
	if err := r.Add(t.Context(), "", "old", "gone", "locked", "HTTP/other"); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(r.Dir, name) }
	r.Export(t, file("all"), "old", "gone", "locked")
	r.Export(t, file("other"), "HTTP/other")
	r.Export(t, file("new"), "old")
	if err := r.Delete(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if err := r.Modify(t.Context(), "-allow_tix", "locked"); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, test := range map[string]struct {
		change    func(*Access)
		found, do string
	}{
		"another key":     {func(a *Access) { a.Principal, a.Keytab = "old", file("all") }, "the key of old@PENSTOCK.TEST in " + file("all") + " is not", "ktadd"},
		"unknown":         {func(a *Access) { a.Principal, a.Keytab = "gone", file("all") }, "does not know gone@PENSTOCK.TEST", "--kerberos-principal"},
		"locked":          {func(a *Access) { a.Principal, a.Keytab = "locked", file("all") }, "locked or has expired", "administrator"},
		"no KDC in file":  {func(a *Access) { a.Config = configOf(t, r, "kdc = ", "admin_server = ") }, "names no KDC of the realm", "[realms]"},
		"nothing listens": {func(a *Access) { a.Config = configOf(t, r, r.Address, "127.0.0.1:1") }, "no KDC of the realm PENSTOCK.TEST answers", "port 88"},
		"clocks differ":   {func(a *Access) { a.Config = configOf(t, r, " rdns = false", " clockskew = 0") }, "clocks", "NTP"},
		"no encryption": {func(a *Access) {
			a.Config = configOf(t, r, " rdns = false", " default_tkt_enctypes = camellia128-cts-cmac")
		}, "", ""},
		"unreadable config": {func(a *Access) { a.Config = configOf(t, r, " rdns = false", " rdns = perhaps") }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := access(r)
			test.change(&a)
			if test.found == "" { // the error is the library's, and must only be one
				u, _ := url.Parse(address)
				c, err := a.Client(u)
				if err == nil {
					_, err = get(t, c, address)
				}
				if err == nil {
					t.Error("no error")
				}
				return
			}
			c := clientFor(t, a, address)
			fails(t, c, address, test.found, test.do)
			fails(t, c, address, test.found, test.do)
		})
	}
	t.Run("no answer", func(t *testing.T) {
		a := access(r)
		a.Config = configOf(t, r, r.Address, silent.Addr().String())
		c := clientFor(t, a, address)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for range 2 { // the second one waits for its turn
			if _, err := loginOf(c).ticket(ctx, "HTTP/localhost", nil); err == nil || !strings.Contains(err.Error(), "answers in time") || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
	})
	t.Run("the server has other keys", func(t *testing.T) {
		site, address := r.Site(t, http.HandlerFunc(echo))
		if err := site.Keys(file("other")); err != nil {
			t.Fatal(err)
		}
		fails(t, clientFor(t, access(r), address), address, "refuses the ticket of penstock@PENSTOCK.TEST for HTTP/localhost", "keytab may be old")
	})
	// Hadoop answers 403 to a ticket that it does not accept. With its cookie, 403 means that the user has no right.
	t.Run("403", func(t *testing.T) {
		cookie := false
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				w.Header().Set("WWW-Authenticate", "Negotiate")
				w.Header().Set("Set-Cookie", "hadoop.auth=; Path=/; HttpOnly")
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if cookie {
				w.Header().Set("Set-Cookie", `hadoop.auth="u=penstock&p=penstock@PENSTOCK.TEST&t=kerberos&e=1&s=x="; Path=/; HttpOnly`)
			}
			w.WriteHeader(http.StatusForbidden)
		}))
		defer s.Close()
		c := clientFor(t, access(r), kdc.Named(s.URL))
		fails(t, c, kdc.Named(s.URL), `refuses the ticket of penstock@PENSTOCK.TEST for HTTP/localhost ("403 Forbidden")`, "log")
		cookie = true
		want(t, c, kdc.Named(s.URL), "403 ")
		if kept := c.Transport.(*transport).hosts[kdc.Named(s.URL)].session(); kept == nil || !strings.HasSuffix(kept.String(), `="u=penstock&p=penstock@PENSTOCK.TEST&t=kerberos&e=1&s=x="`) {
			t.Errorf("the cookie is %v", kept)
		}
	})
	t.Run("no service", func(t *testing.T) {
		if err := r.Delete(t.Context(), "HTTP/localhost"); err != nil {
			t.Fatal(err)
		}
		fails(t, clientFor(t, access(r), address), address, "does not know the service HTTP/localhost", "host's name")
	})
	t.Run("no Negotiate", func(t *testing.T) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}))
		defer s.Close()
		fails(t, clientFor(t, access(r), kdc.Named(s.URL)), kdc.Named(s.URL), `does not offer Kerberos (Negotiate), but "Basic"`, "own address")
	})
}

// Names and files that cannot work are errors at the start.
func TestCheckedAtTheStart(t *testing.T) {
	r := kdc.ForTest(t, "")
	public := filepath.Join(r.Dir, "public.keytab")
	text, err := os.ReadFile(r.User)
	if err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(r.Dir, "part.keytab")
	if os.WriteFile(public, text, 0o600) != nil || os.Chmod(public, 0o604) != nil || os.WriteFile(part, text[:30], 0o600) != nil {
		t.Fatal("no files")
	}
	for want, change := range map[string]func(*Access){
		"give a principal":                                 func(a *Access) { a.Principal = "" },
		"together with a keytab":                           func(a *Access) { a.Keytab = "" },
		"instead of _HOST":                                 func(a *Access) { a.Principal = "penstock/_HOST@PENSTOCK.TEST" },
		"give USER@REALM":                                  func(a *Access) { a.Principal = "@PENSTOCK.TEST" },
		"has no key of other@PENSTOCK.TEST":                func(a *Access) { a.Principal = "other" },
		"has no key of penstock@OTHER.TEST":                func(a *Access) { a.Principal = "penstock@OTHER.TEST" },
		"none: no such file":                               func(a *Access) { a.Keytab = filepath.Join(r.Dir, "none") },
		"no ordinary file":                                 func(a *Access) { a.Keytab = r.Dir },
		"(mode 0604): run `chmod 0600 " + public + "`":     func(a *Access) { a.Keytab = public },
		"part.keytab: it is no keytab":                     func(a *Access) { a.Keytab = part },
		"krb5.conf.none: no such file":                     func(a *Access) { a.Config += ".none" },
		"needs the certificate authority":                  func(a *Access) { a.Cert, a.Key = "x", "y" },
		"give a certificate together with its key":         func(a *Access) { a.CA, a.Cert = "x", "y" },
		"http://localhost:8088: only https has certificat": func(a *Access) { a.CA = "x" },
	} {
		a := access(r)
		change(&a)
		u := &url.URL{Scheme: "http", Host: "localhost:8088"}
		if _, err := a.Client(u); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	_, address := r.Site(t, http.HandlerFunc(echo))
	address = strings.Replace(address, "localhost", "127.0.0.1", 1)
	fails(t, clientFor(t, access(r), address), address, "requires authentication (Kerberos), which knows", "give the host's name")
}

// A ticket is replaced before it ends, and no request fails or waits for that.
func TestTicketsAreRenewed(t *testing.T) {
	r := kdc.ForTest(t, `-maxlife "1 second"`)
	site, address := r.Site(t, http.HandlerFunc(echo))
	site.Forget(false)
	c := clientFor(t, access(r), address)
	want(t, c, address, "200 penstock")
	l := loginOf(c)
	renewed := func(since *ticket) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := poll.Until(ctx, 20*time.Millisecond, func() (bool, error) {
			want(t, c, address, "200 penstock")
			return l.held("HTTP/localhost").got.After(since.got), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	first := l.held("HTTP/localhost")
	if life := first.ends.Sub(first.got); life > time.Second {
		t.Errorf("the ticket lasts %v", life)
	}
	renewed(first)

	if err := r.Modify(t.Context(), `-maxlife "6 hours"`, "penstock", "HTTP/localhost"); err != nil {
		t.Fatal(err)
	}
	c = clientFor(t, access(r), address)
	l = loginOf(c)
	want(t, c, address, "200 penstock")
	before := l.held("HTTP/localhost")
	r.Kill()
	later := func(d time.Duration) { l.now = func() time.Time { return time.Now().Add(d) } }
	later(5*time.Hour + 30*time.Minute)
	want(t, c, address, "200 penstock") // begins to renew the ticket, which fails
	l.turn <- struct{}{}                // the attempt has ended
	<-l.turn
	if now := l.held("HTTP/localhost"); !now.ends.Equal(before.ends) || !now.renew.After(l.now()) {
		t.Errorf("without a KDC: the ticket ends at %v, the next attempt is at %v", now.ends, now.renew)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	later(5*time.Hour + 45*time.Minute)
	renewed(before)
	// An outage that lasts longer than the ticket.
	r.Kill()
	later(7 * time.Hour)
	fails(t, c, address, "no KDC", "krb5.conf")
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	fails(t, c, address, "has already ended", "synchronise")
	if err := r.Modify(t.Context(), `-maxlife "10 hours"`, "penstock", "HTTP/localhost"); err != nil {
		t.Fatal(err)
	}
	want(t, c, address, "200 penstock")
}

// TestRefusedTicketIsNotOfferedAgain checks that a ticket that the server has refused is not used again, also if it has been
// copied because it could not be renewed.
func TestRefusedTicketIsNotOfferedAgain(t *testing.T) {
	const service = "HTTP/localhost"
	l := &login{access: Access{Config: filepath.Join(t.TempDir(), "none")}, now: time.Now, turn: make(chan struct{}, 1), tickets: map[string]*ticket{}}
	first := &ticket{got: time.Now().Add(-time.Hour), renew: time.Now().Add(-time.Minute), ends: time.Now().Add(time.Hour)}
	l.tickets[service] = first
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got, err := l.ticket(ctx, service, nil); got != first || err != nil {
		t.Fatalf("%v, %v; want the first ticket", got, err)
	}
	if err := poll.Until(ctx, time.Millisecond, func() (bool, error) { return l.held(service) != first, nil }); err != nil {
		t.Fatal(err)
	}
	if got, err := l.ticket(ctx, service, first); err == nil {
		t.Errorf("a refused ticket is offered again: %v", got.got)
	}
}

// A key that the KDC rejects is not tried again and again, which could lock the user. A new file is tried at once.
func TestRotatedKeytab(t *testing.T) {
	r := kdc.ForTest(t, "")
	site, address := r.Site(t, http.HandlerFunc(echo))
	site.Forget(false)
	fresh := filepath.Join(r.Dir, "fresh.keytab")
	c := clientFor(t, access(r), address)
	r.Export(t, fresh, "penstock")
	const found = "is not the one that the KDC has"
	fails(t, c, address, found, "ktadd")
	asked := func() int {
		t.Helper()
		text, err := os.ReadFile(r.Log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "AS_REQ")
	}
	before := asked()
	for range 3 {
		fails(t, c, address, found, "ktadd")
	}
	if now := asked(); now != before || before == 0 {
		t.Errorf("the KDC was asked %d times, and then %d times more", before, now-before)
	}
	l := loginOf(c)
	l.now = func() time.Time { return time.Now().Add(firstWait + time.Second) }
	fails(t, c, address, found, "ktadd")
	if asked() == before || l.rejected.wait != 2*firstWait {
		t.Errorf("the KDC was not asked again after a pause; the next one is %v", l.rejected.wait)
	}
	if err := os.Rename(fresh, r.User); err != nil {
		t.Fatal(err)
	}
	want(t, c, address, "200 penstock")
	// A file with old and new keys is good, too, although they were made in the same second.
	r.Export(t, r.User, "penstock")
	want(t, clientFor(t, access(r), address), address, "200 penstock")

	// The server has a new key; the ticket was made for the old one.
	l.now = time.Now
	r.Export(t, fresh, "HTTP/localhost")
	if err := site.Keys(fresh); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	young := *l.tickets["HTTP/localhost"]
	young.got = time.Now()
	l.tickets["HTTP/localhost"] = &young
	l.mu.Unlock()
	fails(t, c, address, "refuses the ticket", "its keytab may be old")
	l.now = func() time.Time { return time.Now().Add(replaceAge + time.Second) }
	want(t, c, address, "200 penstock")
}

// Each server of an HA pair gets a ticket for its own name. A redirect is not followed, and the host that it names gets nothing.
func TestRedirects(t *testing.T) {
	r := kdc.ForTest(t, "")
	if err := r.Add(t.Context(), "", "HTTP/rm1.test", "HTTP/rm2.test", "HTTP/evil.test"); err != nil {
		t.Fatal(err)
	}
	r.Export(t, r.Service, "HTTP/rm1.test", "HTTP/rm2.test", "HTTP/evil.test")
	to := "http://rm2.test:8088/"
	_, standby := r.Site(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusTemporaryRedirect) }))
	_, active := r.Site(t, http.HandlerFunc(echo))
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the host of a redirect gets a request: %v", r.Header)
		w.Header().Set("WWW-Authenticate", "Negotiate")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer hostile.Close()
	c := clientFor(t, access(r), "http://rm1.test:8088", "http://RM2.test:8088")
	at := map[string]string{"rm1.test:8088": standby, "rm2.test:8088": active, "RM2.test:8088": active, "evil.test:80": hostile.URL}
	c.Transport.(*transport).base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(at[address], "http://"))
	}
	for range 2 {
		if got, err := get(t, c, "http://rm1.test:8088"); err != nil || !strings.HasPrefix(got, "307") {
			t.Errorf("%q, %v", got, err)
		}
		want(t, c, "http://RM2.test:8088", "200 penstock")
	}
	for _, service := range []string{"HTTP/rm1.test", "HTTP/rm2.test"} {
		if loginOf(c).held(service) == nil {
			t.Errorf("no ticket for %s", service)
		}
	}
	to = "http://evil.test/"
	if got, err := get(t, c, "http://rm1.test:8088"); err != nil || !strings.HasPrefix(got, "307") {
		t.Errorf("%q, %v", got, err)
	}
	// Even if it were asked: it is not among the configured servers.
	hostile.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Cookies()) > 0 || r.Header.Get("Authorization") != "" {
			t.Errorf("another host gets %v", r.Header)
		}
		w.Header().Set("WWW-Authenticate", "Negotiate")
		w.WriteHeader(http.StatusUnauthorized)
	})
	fails(t, c, "http://evil.test", "requires authentication", "")
	if loginOf(c).held("HTTP/evil.test") != nil {
		t.Error("a ticket for another host")
	}
}

func TestTLS(t *testing.T) {
	r := kdc.ForTest(t, "")
	dir := t.TempDir()
	if _, err := certs.Make(dir, []string{"broker"}, nil); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	site, err := kdc.NewSite(r.Service, http.HandlerFunc(echo))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(site)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if s.TLS, err = (cluster.Files{CA: file("ca.pem"), Cert: file("broker.pem"), Key: file("broker.key")}).Server(); err != nil {
		t.Fatal(err)
	}
	s.StartTLS()
	defer s.Close()
	address := kdc.Named(s.URL)
	a := access(r)
	fails(t, clientFor(t, a, address), address, "unknown authority", "--hadoop-ca")
	a.CA = file("ca.pem")
	fails(t, clientFor(t, a, address), address, "requires a certificate of this side", "--hadoop-cert")
	a.Cert, a.Key = file("broker.pem"), file("broker.key")
	c := clientFor(t, a, address)
	want(t, c, address, "200 penstock")
	// New certificates of another authority are used without a restart.
	for _, name := range []string{"ca.pem", "ca.key", "broker.pem", "broker.key"} {
		if err := os.Remove(file(name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := certs.Make(dir, []string{"broker"}, nil); err != nil {
		t.Fatal(err)
	}
	c.CloseIdleConnections()
	want(t, c, address, "200 penstock")
}

// A broken keytab is an error without anything of its contents.
func FuzzKeytab(f *testing.F) {
	f.Add([]byte{5, 2})
	f.Add([]byte("\x05\x02\x00\x00\x00\x30\x00\x01\x00\x04REALsecret"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := parseKeytab(text); err != nil && err.Error() != "it is no keytab, or a part of one" {
			t.Error(err)
		}
	})
}
