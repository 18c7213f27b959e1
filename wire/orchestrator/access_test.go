package orchestrator

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A server with a certificate of its own, as a kubelet has one.
func TestTokenAndAuthority(t *testing.T) {
	got := ""
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got = r.Header.Get("Authorization"); got == "" {
			w.WriteHeader(http.StatusUnauthorized)
		} else if r.URL.Path != "/pods" {
			http.Redirect(w, r, "/pods", http.StatusFound)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := write(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	token := write(t, "token", "abc.def\n")
	ask := func(a Access, path string) error {
		t.Helper()
		client, err := a.Client()
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Authorize(req); err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return a.StatusError(resp)
	}
	if err := ask(Access{CA: ca, TokenFile: token}, "/pods"); err != nil || got != "Bearer abc.def" {
		t.Errorf("%q, %v", got, err)
	}
	if err := ask(Access{CA: ca, CredentialFile: write(t, "credential", "penstock  pass\n")}, "/pods"); err != nil || !strings.HasPrefix(got, "Basic ") {
		t.Errorf("%q, %v", got, err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, a := range map[string]Access{
		"no ordinary file":         {CA: ca, TokenFile: pipe},
		"give a file with a token": {CA: ca},
		"certificate":              {TokenFile: token},
		"not other.example":        {CA: ca, TokenFile: token, ServerName: "other.example"},
		"one token":                {CA: ca, TokenFile: write(t, "token", "a b")},
		"printable":                {CA: ca, TokenFile: write(t, "token", "a\x00b")},
		"more than 65536":          {CA: ca, TokenFile: write(t, "token", strings.Repeat("a", maxSecret+1))},
		"no such file":             {CA: ca, TokenFile: filepath.Join(t.TempDir(), "none")},
		"a principal and a secret": {CA: ca, CredentialFile: write(t, "credential", "penstock")},
	} {
		if err := ask(a, "/pods"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := ask(Access{CA: ca, TokenFile: write(t, "token", strings.Repeat("a", maxSecret))}, "/pods"); err != nil {
		t.Errorf("a token of the largest length: %v", err)
	}
	if err := ask(Access{CA: ca, TokenFile: token}, "/"); err == nil || !strings.Contains(err.Error(), "not followed") {
		t.Errorf("a redirect: %v", err)
	}
	client, err := Access{CA: ca}.Client()
	if err != nil {
		t.Fatal(err)
	}
	connect := func() error {
		client.CloseIdleConnections()
		resp, err := client.Get(s.URL)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	own, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct {
		text string
		good bool
	}{{string(own), true}, {"", true}, {otherAuthority(t), false}, {string(own), true}} {
		if err := os.WriteFile(ca, []byte(change.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := connect(); (err == nil) != change.good {
			t.Errorf("with %.30q as authorities: %v", change.text, err)
		}
	}
	if _, err := (Access{CA: pipe}).Client(); err == nil || !strings.Contains(err.Error(), "no ordinary file") {
		t.Errorf("a pipe as a certificate: %v", err)
	}
	if _, err := (Access{CA: token}).Client(); err == nil || !strings.Contains(err.Error(), "no PEM certificate") {
		t.Errorf("a token as a certificate: %v", err)
	}
}

// Of an answer that is an error, only the code is repeated.
func TestStatusErrors(t *testing.T) {
	for code, want := range map[int]string{http.StatusOK: "", http.StatusNotFound: "path of the URL", http.StatusFound: "not followed", http.StatusBadGateway: "502 Bad Gateway", 599: "599"} {
		err := Access{}.StatusError(&http.Response{StatusCode: code, Status: strings.Repeat("x", 1<<16)})
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || len(err.Error()) > 500) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

func TestURLs(t *testing.T) {
	token, credential := Access{TokenFile: "t"}, Access{CredentialFile: "c"}
	for _, c := range []struct {
		access Access
		url    string
		ok     bool
	}{
		{Access{}, "http://127.0.0.1:10255/pods", true}, {token, "https://127.0.0.1:10250/pods", true}, {token, "http://127.0.0.1:10250/pods", false},
		{credential, "http://127.0.0.1:5051/state", true}, {credential, "http://localhost:5051/state", true}, {credential, "http://10.0.0.1:5051/state", false},
		{credential, "https://10.0.0.1:5051/state", true}, {Access{CA: "x"}, "http://a/", false}, {Access{}, "https://a:b@c/", false}, {Access{}, "ftp://a/", false}, {Access{}, "https://a:b@c:x/", false}, {Access{}, "https://a:b@%zz/", false}, {Access{}, "a:b@c/", false}, {Access{}, "//a:b@c/", false},
		{Access{}, "/pods", false}, {Access{}, "", false}, {Access{}, "http://a/#x", false},
	} {
		err := c.access.CheckURL(c.url)
		if (err == nil) != c.ok {
			t.Errorf("%+v %s: %v", c.access, c.url, err)
		}
		if err != nil && strings.Contains(err.Error(), "a:b@") {
			t.Errorf("the error contains the password: %v", err)
		}
	}
}

// A file system that hangs does not hold up those who read its files: each gets an error in time, and one goroutine waits.
func TestAFileThatHangs(t *testing.T) {
	var mu sync.Mutex
	opened := map[string]int{}
	let := make(chan struct{})
	f := files{limit: 10 * time.Millisecond, open: func(file string, _ int64) ([]byte, error) {
		mu.Lock()
		opened[file]++
		mu.Unlock()
		if file == "nfs" {
			<-let
		}
		return []byte("of " + file), nil
	}}
	for range 3 {
		if text, err := f.read("nfs", 1); !errors.Is(err, ErrSlowFile) || text != nil {
			t.Errorf("%q, %v", text, err)
		}
		if text, err := f.read("disk", 1); err != nil || string(text) != "of disk" {
			t.Errorf("another file: %q, %v", text, err)
		}
	}
	mu.Lock()
	if opened["nfs"] != 1 || opened["disk"] != 3 {
		t.Errorf("%v", opened)
	}
	mu.Unlock()
	// The file system answers again. The read that hung counts for those who wait, and the next one reads the file again.
	f.limit = time.Minute
	close(let)
	for range 2 {
		if text, err := f.read("nfs", 1); err != nil || string(text) != "of nfs" {
			t.Errorf("%q, %v", text, err)
		}
	}
}

// otherAuthority returns the certificate of an authority that has signed no server's certificate.
func otherAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
