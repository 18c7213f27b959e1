package applications

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/broker/kerberos"
	"penstock/lab/kdc"
	"penstock/lab/poll"
)

func securedAccess(r *kdc.Realm) kerberos.Access {
	return kerberos.Access{Principal: "penstock@PENSTOCK.TEST", Keytab: r.User, Config: r.Config}
}

// A ResourceManager that asks for Kerberos, and the KDC of its realm, are killed and come back. The facts stay in force meanwhile.
func TestSecuredResourceManager(t *testing.T) {
	r := kdc.ForTest(t, "")
	m := startManager(t)
	m.set(nil, anApp(1, 5))
	site, address := r.Site(t, m)
	site.Forget(false) // each request needs a ticket
	d, log := directory(t, Options{ResourceManagers: []string{address}, Hadoop: securedAccess(r)})
	if err := list(t, d); err != "" || d.Facts(id(1)).User != "user1" {
		t.Fatalf("%s, %+v", err, d.Facts(id(1)))
	}
	// Its ticket is good without a KDC.
	r.Kill()
	if err := list(t, d); err != "" {
		t.Error(err)
	}
	// A broker that starts without a KDC has facts as soon as there is one.
	later, log := directory(t, Options{ResourceManagers: []string{address}, Hadoop: securedAccess(r)})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go later.Run(ctx, func([]string) {})
	wait := func(what string, done func(Source) bool) {
		t.Helper()
		if err := poll.Until(ctx, 10*time.Millisecond, func() (bool, error) { return done(later.Sources()[0]), nil }); err != nil {
			t.Fatalf("%s: %v: %+v\n%s", what, err, later.Sources(), log)
		}
	}
	wait("no KDC", func(s Source) bool {
		return strings.Contains(s.Error, "no KDC of the realm PENSTOCK.TEST answers") && s.Answered.IsZero()
	})
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait("the KDC is back", func(s Source) bool { return s.Error == "" && later.Facts(id(1)).User == "user1" })
	// The key of the server is replaced, and the server does not have it yet.
	r.Export(t, filepath.Join(r.Dir, "other"), "HTTP/localhost")
	if err := site.Keys(filepath.Join(r.Dir, "other")); err != nil {
		t.Fatal(err)
	}
	wait("another key", func(s Source) bool { return strings.Contains(s.Error, "refuses the ticket") })
	if f := later.Facts(id(1)); f.User != "user1" || f.Bandwidth != 60 {
		t.Errorf("the known facts are now %+v", f)
	}
	if err := site.Keys(r.Service); err != nil {
		t.Fatal(err)
	}
	wait("the former key", func(s Source) bool { return s.Error == "" })
}

// A standby asks for Kerberos, too, and then redirects to the active server, which is among the addresses.
func TestSecuredPair(t *testing.T) {
	r := kdc.ForTest(t, "")
	active := &atomic.Int32{}
	var addresses []string
	for i := range 2 {
		m := startManager(t)
		m.set(nil, anApp(1, 5))
		_, address := r.Site(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if int(active.Load()) != i {
				redirect(addresses[active.Load()])(w, r)
				return
			}
			m.ServeHTTP(w, r)
		}))
		addresses = append(addresses, address)
	}
	d, _ := directory(t, Options{ResourceManagers: addresses, Hadoop: securedAccess(r)})
	for i := range 4 {
		active.Store(int32(i % 2))
		if err := list(t, d); err != "" || d.Sources()[0].Address != addresses[i%2] {
			t.Errorf("%s, %+v", err, d.Sources())
		}
	}
}

// In a secured cluster, the proxy returns the page of another user's application only after a warning.
func TestProgressInASecuredCluster(t *testing.T) {
	r := kdc.ForTest(t, "")
	m := startManager(t)
	m.set(nil, anApp(1, 5, with("applicationType", sparkType)))
	_, address := r.Site(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/proxy/") {
			m.ServeHTTP(w, r)
			return
		}
		if c, err := r.Cookie("checked_" + id(1)); err != nil || c.Value != "true" || r.Header.Get(kdc.UserHeader) != "penstock" {
			fmt.Fprint(w, "<html>WARNING: The following page may not be safe!")
			return
		}
		fmt.Fprint(w, "["+aJob(0, 10, 4, 0, "RUNNING")+"]")
	}))
	d, log := directory(t, Options{ResourceManagers: []string{address}, Hadoop: securedAccess(r)})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go d.Run(ctx, func([]string) {})
	if err := poll.Until(ctx, 10*time.Millisecond, func() (bool, error) {
		d.Facts(id(1))
		return d.RunOf(id(1)).Progress == 0.4, nil
	}); err != nil {
		t.Errorf("%v: %+v\n%s", err, d.RunOf(id(1)), log)
	}
}
