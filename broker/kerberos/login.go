package kerberos

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"github.com/jcmturner/gokrb5/v8/types"

	"penstock/settings"
	"penstock/settings/plain"
)

const (
	maxKeytab = 1 << 20 // bytes
	maxConfig = 1 << 20 // bytes
	// replaceAge is the age from which a ticket that the server refuses is replaced: the server's key may be a new one. It bounds the
	// load of the KDC by a server that refuses all tickets.
	replaceAge = time.Minute
	// firstWait and maxWait bound the pause after the KDC has rejected the key. More attempts could lock the
	// user. A changed keytab ends the pause.
	firstWait = time.Minute
	maxWait   = 10 * time.Minute
	// renewRetry is the pause after a ticket that still lasts could not be renewed.
	renewRetry = time.Minute
)

// login gets and keeps the tickets of one principal. It is safe for use by several goroutines.
type login struct {
	access Access
	user   string // the principal without its realm
	realm  string
	named  *client.Client   // has the names for tokens, and no key
	now    func() time.Time // time.Now, except in tests

	turn chan struct{} // held by the goroutine that speaks with the KDC

	mu      sync.Mutex
	tickets map[string]*ticket // by service, of which there is one for each configured host

	rejected rejection // used by the holder of turn
}

// ticket is a ticket for a service.
type ticket struct {
	ticket           messages.Ticket
	key              types.EncryptionKey // of the session
	got, renew, ends time.Time
}

// rejection is the answer of a KDC that does not accept a key.
type rejection struct {
	files [sha256.Size]byte // of the keytab and krb5.conf
	err   error
	wait  time.Duration
	until time.Time
}

// newLogin checks the names and the files of an access.
func newLogin(a Access) (*login, error) {
	if a.Principal == "" || a.Keytab == "" {
		return nil, errors.New("give a principal (--kerberos-principal) together with a keytab (--kerberos-keytab)")
	}
	if a.Config == "" {
		a.Config = DefaultConfig
	}
	if strings.Contains(a.Principal, "_HOST") {
		return nil, fmt.Errorf("principal %q: write the host's name instead of _HOST", a.Principal)
	}
	l := &login{access: a, now: time.Now, turn: make(chan struct{}, 1), tickets: map[string]*ticket{}}
	l.user, l.realm, _ = strings.Cut(a.Principal, "@")
	conf, text, err := readConfig(a.Config)
	if err != nil {
		return nil, err
	}
	if l.realm == "" {
		l.realm = conf.LibDefaults.DefaultRealm
	}
	if l.user == "" || l.realm == "" || strings.ContainsAny(a.Principal, " \t\r\n\\") || strings.Contains(l.realm, "@") {
		return nil, fmt.Errorf("principal %q: give USER@REALM or USER/HOST@REALM", a.Principal)
	}
	l.access.Principal = l.user + "@" + l.realm
	l.named = client.NewWithKeytab(l.user, l.realm, keytab.New(), config.New())
	_, _, err = l.keys(text)
	return l, err
}

// ticket returns a ticket for a service other than the refused one, which may be nil. It waits for the KDC until ctx ends. While a ticket still
// lasts, the KDC may be away.
func (l *login) ticket(ctx context.Context, service string, refused *ticket) (*ticket, error) {
	if t := l.held(service); l.useful(t, refused) {
		if l.now().After(t.renew) {
			select {
			case l.turn <- struct{}{}:
				go l.exchange(service)
			default: // somebody speaks with the KDC; the next request tries again
			}
		}
		return t, nil
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, l.unanswered(ctx.Err())
	}
	// Another request may have been faster.
	if t := l.held(service); l.useful(t, refused) {
		<-l.turn
		return t, nil
	}
	failed := make(chan error, 1)
	go func() { failed <- l.exchange(service) }()
	select {
	case err := <-failed:
		t := l.held(service)
		if err == nil && !l.useful(t, refused) {
			return nil, l.ended(service)
		}
		return t, err
	case <-ctx.Done():
		return nil, l.unanswered(ctx.Err())
	}
}

func (l *login) held(service string) *ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tickets[service]
}

// useful reports whether a ticket is still valid and is not the refused one or a copy of it.
func (l *login) useful(t, refused *ticket) bool {
	return t != nil && l.now().Before(t.ends) && (refused == nil || !t.got.Equal(refused.got))
}

// mayReplace reports whether a ticket that the server refuses may be replaced.
func (l *login) mayReplace(t *ticket) bool { return l.now().Sub(t.got) > replaceAge }

// header returns the value of the Authorization header for one request.
func (l *login) header(t *ticket) (value string, err error) {
	defer recovered(&err)
	init, err := spnego.NewNegTokenInitKRB5(l.named, t.ticket, t.key)
	if err != nil {
		return "", err
	}
	token := spnego.SPNEGOToken{Init: true, NegTokenInit: init}
	bytes, err := token.Marshal()
	if err != nil {
		return "", err
	}
	return "Negotiate " + base64.StdEncoding.EncodeToString(bytes), nil
}

// exchange gets a ticket for a service from the KDC and stores it. The caller has taken the turn, and
// exchange gives it back.
func (l *login) exchange(service string) error {
	defer func() { <-l.turn }()
	t, err := l.request(service)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch old := l.tickets[service]; {
	case err == nil:
		l.tickets[service] = t
	case old != nil:
		again := *old // others may read the old one
		again.renew = l.now().Add(renewRetry)
		l.tickets[service] = &again
	}
	return err
}

// request gets a ticket for a service from the KDC, beginning with the key in the keytab.
func (l *login) request(service string) (t *ticket, err error) {
	defer recovered(&err)
	conf, text, err := readConfig(l.access.Config)
	if err != nil {
		return nil, err
	}
	keys, files, err := l.keys(text)
	if err != nil {
		return nil, err
	}
	if r := l.rejected; r.err != nil && r.files == files && l.now().Before(r.until) {
		return nil, r.err
	}
	cl := client.NewWithKeytab(l.user, l.realm, keys, conf, client.DisablePAFXFAST(true))
	defer cl.Destroy()
	t, realm, err := l.serviceTicket(cl, service)
	if err == nil {
		l.rejected = rejection{}
		return t, nil
	}
	explained, rejected := l.explain(realm, service, err)
	if rejected {
		wait := firstWait
		if l.rejected.files == files {
			wait = min(max(2*l.rejected.wait, firstWait), maxWait)
		}
		l.rejected = rejection{files, explained, wait, l.now().Add(wait)}
	}
	return nil, explained
}

// serviceTicket gets a ticket-granting ticket and, with it, a ticket for a service. realm is the one whose KDC was asked last.
func (l *login) serviceTicket(cl *client.Client, service string) (t *ticket, realm string, err error) {
	realm = l.realm
	name := types.NewPrincipalName(nametype.KRB_NT_PRINCIPAL, service)
	ask, err := messages.NewASReqForTGT(realm, cl.Config, cl.Credentials.CName())
	if err != nil {
		return nil, realm, err
	}
	granted, err := cl.ASExchange(realm, ask, 0)
	if err != nil {
		return nil, realm, err
	}
	tgt, key := granted.Ticket, granted.DecryptedEncPart.Key
	if other := cl.Config.ResolveRealm(name.NameString[len(name.NameString)-1]); other != "" && other != realm {
		across := types.PrincipalName{NameType: nametype.KRB_NT_SRV_INST, NameString: []string{"krbtgt", other}}
		_, reply, err := cl.TGSREQGenerateAndExchange(across, realm, tgt, key, false)
		if err != nil {
			return nil, realm, err
		}
		tgt, key, realm = reply.Ticket, reply.DecryptedEncPart.Key, other
	}
	_, reply, err := cl.TGSREQGenerateAndExchange(name, realm, tgt, key, false)
	if err != nil {
		return nil, realm, err
	}
	now := l.now()
	t = &ticket{ticket: reply.Ticket, key: reply.DecryptedEncPart.Key, got: now, ends: reply.DecryptedEncPart.EndTime}
	t.renew = now.Add(t.ends.Sub(now) / 6 * 5)
	return t, realm, nil
}

// keys reads the keytab. files identifies the contents of the keytab and of krb5.conf.
func (l *login) keys(conf []byte) (keys *keytab.Keytab, files [sha256.Size]byte, err error) {
	file := l.access.Keytab
	text, err := readSecret(file)
	if err != nil {
		return nil, files, fmt.Errorf("keytab: %w", err)
	}
	if keys, err = parseKeytab(text); err != nil {
		return nil, files, fmt.Errorf("keytab: %s: %w", file, err)
	}
	// The library prefers the key with the latest time, which may be one of two of the same second. Only the latest version is left to it.
	kept, version := keys.Entries[:0], uint32(0)
	for _, e := range keys.Entries {
		if e.Principal.Realm != l.realm || strings.Join(e.Principal.Components, "/") != l.user || e.KVNO < version {
			continue
		}
		if e.KVNO > version {
			kept, version = kept[:0], e.KVNO
		}
		kept = append(kept, e)
	}
	if keys.Entries = kept; len(kept) > 0 {
		return keys, sha256.Sum256(slices.Concat(text, conf)), nil
	}
	return nil, files, fmt.Errorf("keytab: %s has no key of %s: give the name of a principal in it (`klist -k` lists them), or another file", file, l.access.Principal)
}

// parseKeytab does not return the library's errors, because they may contain keys.
func parseKeytab(text []byte) (keys *keytab.Keytab, err error) {
	bad := errors.New("it is no keytab, or a part of one")
	defer func() {
		if recover() != nil {
			keys, err = nil, bad
		}
	}()
	keys = keytab.New()
	if keys.Unmarshal(text) != nil {
		return nil, bad
	}
	return keys, nil
}

// readSecret reads a file that no other user may read.
func readSecret(file string) ([]byte, error) {
	// To open a pipe without a writer would take for ever.
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, plain.File(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, plain.File(err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no ordinary file", file)
	case info.Mode().Perm()&0o027 != 0: // the group may read it
		return nil, fmt.Errorf("%s: other users may read or change it (mode %#o): run `chmod 0600 %s`", file, info.Mode().Perm(), file)
	case info.Size() > maxKeytab:
		return nil, fmt.Errorf("%s: over %d bytes", file, maxKeytab)
	}
	return io.ReadAll(io.LimitReader(f, maxKeytab))
}

// readConfig reads Kerberos' configuration.
func readConfig(file string) (conf *config.Config, text []byte, err error) {
	if text, err = settings.Read(file, maxConfig); err != nil {
		return nil, nil, fmt.Errorf("configuration of Kerberos: %w", err)
	}
	defer recovered(&err)
	conf, err = config.NewFromString(string(text))
	if err != nil && !errors.As(err, new(config.UnsupportedDirective)) {
		return nil, nil, fmt.Errorf("configuration of Kerberos: %s: %w", file, err)
	}
	if !strings.Contains(string(text), "dns_lookup_kdc") {
		conf.LibDefaults.DNSLookupKDC = true // as in MIT's libraries
	}
	// The library knows kinds of encryption that it does not ask for by default.
	for name, kinds := range map[string]*[]int32{"default_tkt_enctypes": &conf.LibDefaults.DefaultTktEnctypeIDs, "default_tgs_enctypes": &conf.LibDefaults.DefaultTGSEnctypeIDs} {
		if !strings.Contains(string(text), name) {
			*kinds = append(*kinds, etypeID.AES256_CTS_HMAC_SHA384_192, etypeID.AES128_CTS_HMAC_SHA256_128)
		}
	}
	return conf, text, nil
}

// recovered turns a panic into an error. The library reads messages from the network, and a hostile one must not end the program.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the Kerberos library failed: %.*v", maxText, p)
	}
}
