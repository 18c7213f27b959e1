package node

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/node/status"
	"penstock/wire/web"
)

// TestStatusNeedsItsToken: with listen_token, metrics and status need the token, and health does not.
func TestStatusNeedsItsToken(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("x", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startWith(t, "observe", "listen_token: "+token+"\nforeign: totals\n")
	address := strings.TrimPrefix(r.url, "http://")
	code := func(page string) int {
		t.Helper()
		resp, err := web.Get(t.Context(), address, page)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for page, want := range map[string]int{"/metrics": http.StatusUnauthorized, "/status": http.StatusUnauthorized, "/-/healthy": http.StatusOK, "/-/ready": http.StatusOK} {
		if got := code(page); got != want {
			t.Errorf("%s without the token: %d", page, got)
		}
	}
	if _, err := status.Fetch(t.Context(), address); err == nil || !strings.Contains(err.Error(), web.TokenEnv) {
		t.Errorf("the status without the token: %v", err)
	}
	t.Setenv(web.TokenEnv, token)
	if got := code("/metrics"); got != http.StatusOK {
		t.Errorf("metrics with the token: %d", got)
	}
	if doc, err := status.Fetch(t.Context(), address); err != nil || doc.Mode != "observe" {
		t.Errorf("the status with the token: %v", err)
	}
}

// TestStatusByUnixSocket: the same pages behind a Unix socket.
func TestStatusByUnixSocket(t *testing.T) {
	d := startWith(t, "observe", "foreign: totals\n").daemon
	address := web.UnixPrefix + filepath.Join(t.TempDir(), "status.sock")
	server, err := d.listenHTTP(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); server.serve(ctx, d.log) }()
	if doc, err := status.Fetch(t.Context(), address); err != nil || doc.Mode != "observe" {
		t.Errorf("%v", err)
	}
	if server.address() != address {
		t.Errorf("the address %s", server.address())
	}
	server.close()
	cancel()
	<-done
}
