package kerberos

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
)

// Error is a failure that the reader can do something about.
type Error struct {
	Asks  bool   // the server asks for Kerberos, and no ticket could be tried
	Found string // what is wrong
	Do    string // what to do
	Cause error  // nil: none
}

func (e *Error) Error() string { return e.Found + ": " + e.Do }
func (e *Error) Unwrap() error { return e.Cause }

const maxText = 300 // bytes of a message of another program

// cause describes failures of the KDC or of the exchange with it. The library has only texts.
var causes = []struct {
	parts     []string
	found, do string
	rejected  bool // the KDC does not accept this key or user: more attempts could lock the user
}{
	{parts: []string{code(errorcode.KRB_AP_ERR_SKEW), "clock skew"},
		found: "the clocks of this machine and of the KDC differ too much", do: "synchronise both (NTP)"},
	{parts: []string{"matching key not found in keytab"},
		found: "KEYTAB has no key of PRINCIPAL of the kind that the KDC asks for", do: "export the principal's keys again (kadmin: ktadd); `klist -ket` lists those in a file", rejected: true},
	{parts: []string{code(errorcode.KDC_ERR_PREAUTH_FAILED), "client password/keytab incorrect"},
		found: "the key of PRINCIPAL in KEYTAB is not the one that the KDC has", do: "export the principal's keys again (kadmin: ktadd)", rejected: true},
	{parts: []string{code(errorcode.KDC_ERR_C_PRINCIPAL_UNKNOWN)},
		found: "the KDC does not know PRINCIPAL", do: "correct --kerberos-principal, or create the principal", rejected: true},
	{parts: []string{code(errorcode.KDC_ERR_CLIENT_REVOKED), code(errorcode.KDC_ERR_KEY_EXPIRED), code(errorcode.KDC_ERR_NAME_EXP)},
		found: "PRINCIPAL is locked or has expired", do: "let the administrator of the KDC enable it", rejected: true},
	{parts: []string{code(errorcode.KDC_ERR_S_PRINCIPAL_UNKNOWN)},
		found: "the KDC does not know the service SERVICE", do: "use in the URL the host's name as in the server's principal, or create that principal; with several realms, map the host to its realm in krb5.conf ([domain_realm])"},
	{parts: []string{code(errorcode.KDC_ERR_ETYPE_NOSUPP)},
		found: "the KDC and this side have no kind of encryption in common", do: "compare the kinds of the keys (`klist -ket`) with default_tkt_enctypes in krb5.conf"},
	{parts: []string{"no KDC", "not have any defined KDCs", "lookup _kerberos"},
		found: "CONFIG names no KDC of the realm REALM", do: "add the realm to [realms]; files that it includes are not read"},
	{parts: []string{"communication error with KDC", "failed to communicate with KDC", "error sending to a KDC"},
		found: "no KDC of the realm REALM answers", do: "check the KDCs in CONFIG, and whether their port 88 can be reached"},
}

func code(n int32) string { return errorcode.Lookup(n) }

// explain describes a failed exchange. rejected reports that the KDC does not accept the key or the user.
func (l *login) explain(realm, service string, err error) (e *Error, rejected bool) {
	text := err.Error()
	fill := strings.NewReplacer("PRINCIPAL", l.access.Principal, "KEYTAB", l.access.Keytab, "CONFIG", l.access.Config, "REALM", realm, "SERVICE", service)
	for _, c := range causes {
		for _, part := range c.parts {
			if strings.Contains(text, part) {
				return &Error{Found: fill.Replace(c.found), Do: fill.Replace(c.do), Cause: err}, c.rejected
			}
		}
	}
	return &Error{Found: fmt.Sprintf("no ticket of %s for %s: %.*q", l.access.Principal, service, maxText, text), Do: "read the KDC's log", Cause: err}, false
}

// unanswered is the error of a request that did not wait longer for the KDC.
func (l *login) unanswered(cause error) error {
	e, _ := l.explain(l.realm, "", errors.New("error sending to a KDC"))
	e.Found += " in time"
	e.Cause = cause
	return e
}

// ended is the error about a new ticket that has already ended.
func (l *login) ended(service string) error {
	return &Error{Found: fmt.Sprintf("the new ticket of %s for %s has already ended", l.access.Principal, service),
		Do: "synchronise the clocks of this machine and of the KDC (NTP), and look at the lifetime of tickets (kadmin: getprinc)"}
}

// refusal is the error of a server that does not accept a ticket.
func (l *login) refusal(service, status string) error {
	return &Error{Found: fmt.Sprintf("it refuses the ticket of %s for %s (%.*q)", l.access.Principal, service, maxText, status),
		Do: "read its log: the key of this service in its keytab may be old, its clock may be wrong, or it gives this user no right"}
}

func noNegotiate(offers []string) error {
	e := &Error{Found: "it answers 401 and does not offer Kerberos (Negotiate)", Do: "use the server's own address: something else may answer there, or the server wants another kind of authentication"}
	if len(offers) > 0 {
		kind, _, _ := strings.Cut(offers[0], " ")
		e.Found += fmt.Sprintf(", but %.40q", kind)
	}
	return e
}

// untrusted describes a certificate that one of the sides does not accept. It returns other errors unchanged.
func untrusted(err error) error {
	if text := err.Error(); strings.Contains(text, "tls: certificate required") || strings.Contains(text, "tls: bad certificate") {
		return &Error{Found: "it requires a certificate of this side, or another one", Do: "give --hadoop-cert and --hadoop-key", Cause: err}
	}
	var verify *tls.CertificateVerificationError
	if !errors.As(err, &verify) {
		return err
	}
	e := &Error{Found: "its certificate is not accepted: " + verify.Err.Error(), Do: "give a URL with the host's name as in the certificate, and renew the certificate if it has expired", Cause: err}
	if errors.As(err, new(x509.UnknownAuthorityError)) {
		e.Found, e.Do = "its certificate is of an unknown authority", "give the authority's certificate with --hadoop-ca"
	}
	return e
}
