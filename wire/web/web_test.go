package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := Bounded(l, 1)
	defer b.Close()
	accepted := make(chan net.Conn, 3)
	go func() {
		for {
			c, err := b.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(10 * time.Second))
		return c
	}
	dial()
	one := <-accepted
	if _, err := dial().Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second one: %v", err)
	}
	one.Close()
	one.Close() // this counts once
	dial()
	<-accepted
}

// TestUnixSocket: pages behind a Unix socket, which replaces one that is left over, and not one in use.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	l, err := Listen(t.Context(), UnixPrefix+path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != socketMode || Bound(l) != UnixPrefix+path {
		t.Errorf("%v, %v, %s", st, err, Bound(l))
	}
	if _, err := Listen(t.Context(), UnixPrefix+path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second program: %v", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) })}
	go server.Serve(l)
	r, err := Get(t.Context(), UnixPrefix+path, "/status")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if r.Body.Close(); err != nil || string(body) != "/status" {
		t.Errorf("%q, %v", body, err)
	}
	server.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), UnixPrefix+path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for address, good := range map[string]bool{"127.0.0.1:1": true, "[::1]:0": true, "unix:/run/a": true, "unix:a": false, "unix:/a/../b": false, "unix:/" + strings.Repeat("a", 107): false, "a": false} {
		if err := CheckAddress(address); (err == nil) != good {
			t.Errorf("%s: %v", address, err)
		}
	}
	var wrong *AddressError
	if _, err := Get(t.Context(), "a b", "/"); !errors.As(err, &wrong) {
		t.Error(err)
	}
}

// TestToken: pages need the token that is in the file at the time.
func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		os.Remove(file)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	first, second := strings.Repeat("a", 16), strings.Repeat("b", 32)
	for text, want := range map[string]string{"short": "printable", first + " x": "printable", first + "\nsecond": "printable", "": "printable", strings.Repeat("a", 2000): "over"} {
		if write(text, 0o600); true {
			if _, err := OpenToken(file); err == nil || !strings.Contains(err.Error(), want) || text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("%.20q: %v", text, err)
			}
		}
	}
	write(first+"\n", 0o644)
	if _, err := OpenToken(file); err == nil || !strings.Contains(err.Error(), "chmod 640") {
		t.Errorf("readable by all: %v", err)
	}
	write(first+"\n", 0o640)
	token, err := OpenToken(file)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(token.Authorized(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer s.Close()
	get := func() int {
		t.Helper()
		r, err := Get(t.Context(), strings.TrimPrefix(s.URL, "http://"), "/")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode
	}
	if code := get(); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", code)
	}
	own := filepath.Join(t.TempDir(), "own")
	t.Setenv(TokenEnv, own)
	mine := func(text string) {
		t.Helper()
		if err := os.WriteFile(own, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		theirs, mine string
		code         int
	}{{first, first, 200}, {first, second, 401}, {second, first, 401}, {second, second, 200}, {"wrong", second, 200}} {
		write(step.theirs, 0o600)
		mine(step.mine)
		if code := get(); code != step.code {
			t.Errorf("%+v: %d", step, code)
		}
	}
	mine("x")
	if _, err := Get(t.Context(), "127.0.0.1:1", "/"); err == nil || !strings.Contains(err.Error(), TokenEnv) {
		t.Errorf("a wrong file: %v", err)
	}
	var none *Token
	if h := http.NotFoundHandler(); none.Authorized(h) == nil {
		t.Error("no handler")
	}
}

// TestFew: at most MaxRequests pages are made at a time.
func TestFew(t *testing.T) {
	made, wait := make(chan bool, 2*MaxRequests), make(chan bool)
	h := Few(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { made <- true; <-wait }))
	codes := make(chan int, 2*MaxRequests)
	ask := func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/", nil))
		codes <- w.Code
	}
	for range MaxRequests {
		go ask()
		<-made
	}
	ask()
	if code := <-codes; code != http.StatusServiceUnavailable {
		t.Errorf("one more: %d", code)
	}
	close(wait)
	for range MaxRequests {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("%d", code)
		}
	}
	ask()
	if code := <-codes; code != http.StatusOK {
		t.Errorf("afterwards: %d", code)
	}
}
