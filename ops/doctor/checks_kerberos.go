package doctor

import (
	"errors"
	"strings"

	"penstock/broker/kerberos"
)

// secured is a remedy for web addresses that require more than plain HTTP.
const secured = "; with Kerberos, also give --kerberos-principal and --kerberos-keytab, and for https of an own authority --hadoop-ca"

// checkKerberos reports whether the ResourceManagers ask for Kerberos and accept the given principal.
func checkKerberos(f *Facts) (all []Result) {
	if len(f.ResourceManagers) == 0 {
		return good("no ResourceManager was named; --resource-manager checks whether it asks for Kerberos, and accepts a keytab")
	}
	const unknown = "the broker, which asks in the same way, would not know queues, users and tags of applications: the policy's rules match only their ids"
	for _, m := range f.ResourceManagers {
		found, do := "", "name its web address with --resource-manager http://HOST:PORT or https://HOST:PORT (yarn.resourcemanager.webapp.address or .https.address)"
		if m.Err != nil {
			found = m.URL + ": " + m.Err.Error()
		}
		if e := (*kerberos.Error)(nil); errors.As(m.Err, &e) {
			found, do = m.URL+": "+e.Found, e.Do
		} else if m.Wrong {
			do = "correct the flag or the file that it names"
		}
		plain := ""
		if strings.HasPrefix(m.URL, "http://") {
			plain = "; the connection is not encrypted, so somebody who reads it can ask as that user for a while: https is safer"
		}
		switch {
		case m.Err == nil && m.Tried:
			all = append(all, good("%s asks for Kerberos and accepts %s%s", m.URL, m.Principal, plain)...)
		case m.Err == nil:
			all = append(all, good("%s answers without Kerberos", m.URL)...)
		case m.Asks && !m.Tried:
			all = append(all, bad(Warn, m.URL+" asks for Kerberos", unknown, "give the broker --kerberos-principal and --kerberos-keytab; with the same flags, the doctor checks them")...)
		case m.Tried:
			all = append(all, bad(Fail, found, unknown, do)...)
		default:
			all = append(all, bad(Warn, found, unknown, do)...)
		}
	}
	return all
}
