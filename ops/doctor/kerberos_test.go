package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/broker/kerberos"
	"penstock/lab/kdc"
)

// The doctor asks a ResourceManager, and a DataNode, of a realm with a real KDC.
func TestKerberos(t *testing.T) {
	r := kdc.ForTest(t, "")
	_, manager := r.Site(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws/v1/cluster/info" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"clusterInfo":{"haState":"ACTIVE"}}`)
	}))
	standby := httptest.NewServer(http.RedirectHandler("http://other.example/", http.StatusTemporaryRedirect))
	defer standby.Close()
	_, node := r.Site(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"beans":[{"Version":"3.4.2"}]}`)
	}))
	public := filepath.Join(r.Dir, "public")
	if text, err := os.ReadFile(r.User); err != nil || os.WriteFile(public, text, 0o600) != nil || os.Chmod(public, 0o644) != nil {
		t.Fatal(err)
	}
	if err := r.Add(t.Context(), "", "other"); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(r.Dir, "old")
	r.Export(t, old, "other")
	r.Export(t, filepath.Join(r.Dir, "new"), "other")
	penstock := kerberos.Access{Principal: "penstock@PENSTOCK.TEST", Keytab: r.User, Config: r.Config}
	for name, test := range map[string]struct {
		address   string
		access    kerberos.Access
		verdict   Verdict
		found, do string
	}{
		"accepted":      {manager, penstock, OK, "asks for Kerberos and accepts penstock@PENSTOCK.TEST; the connection is not encrypted", ""},
		"no principal":  {manager, kerberos.Access{}, Warn, "asks for Kerberos", "give the broker --kerberos-principal"},
		"only a keytab": {manager, kerberos.Access{Keytab: r.User}, Fail, "give a principal", "correct the flag"},
		"readable":      {manager, kerberos.Access{Principal: "penstock", Keytab: public, Config: r.Config}, Fail, "run `chmod 0600 " + public, "correct the flag or the file"},
		"an old key":    {manager, kerberos.Access{Principal: "other", Keytab: old, Config: r.Config}, Fail, "is not the one that the KDC has", "ktadd"},
		"not secured":   {standby.URL, penstock, OK, "answers without Kerberos", ""},
		"another site":  {node, penstock, Fail, "it is not a ResourceManager", "--resource-manager"},
		"nothing":       {"http://127.0.0.1:1", penstock, Warn, "connection refused", "--resource-manager"},
		"by address":    {strings.Replace(manager, "localhost", "127.0.0.1", 1), penstock, Fail, "names of their hosts", "give the host's name"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Facts{ResourceManagers: []ResourceManager{askResourceManager(t.Context(), test.address, test.access)}}
			got := checkKerberos(f)
			if len(got) != 1 || got[0].Verdict != test.verdict || !strings.Contains(got[0].Found, test.found) || !strings.Contains(got[0].Remedy, test.do) {
				t.Errorf("%+v", got)
			}
		})
	}
	if d := askDataNode(t.Context(), openSite(node, penstock)); d.Err != nil || d.Version != "3.4.2" {
		t.Errorf("%+v", d)
	}
	d := askDataNode(t.Context(), openSite(node, kerberos.Access{}))
	got := checkDataNode(&Facts{DataNode: d})
	if len(got) != 1 || got[0].Verdict != Fail || !strings.Contains(got[0].Found, "requires authentication (Kerberos)") || !strings.Contains(got[0].Remedy, "--kerberos-keytab") {
		t.Errorf("%+v", got)
	}
	// Without an address, a NodeManager at the usual one is reported if it requires Kerberos.
	n := askNodeManager(t.Context(), openSite(node, kerberos.Access{}))
	if got := checkNodeManager(&Facts{NodeManager: n}); len(got) != 1 || got[0].Verdict != Warn || !strings.Contains(got[0].Found, "requires authentication (Kerberos)") {
		t.Errorf("%+v", got)
	}
	// The certificates are for the https addresses among them.
	if s := openSite("http://127.0.0.1:9864", kerberos.Access{CA: "none"}); s.err != nil {
		t.Error(s.err)
	}
	if s := openSite("https://127.0.0.1:9865", kerberos.Access{CA: filepath.Join(r.Dir, "none")}); s.err == nil {
		t.Error("a missing authority is no error")
	}
}
