package plain

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):     "none: no such file or folder",
		dir:                            "it is a folder, and must be a file",
		filepath.Join(file, "further"): "a part of this path is a file",
	} {
		_, err := os.ReadFile(path)
		if got := File(err); got == nil || !strings.HasPrefix(got.Error(), path+": ") || !strings.HasSuffix(got.Error(), want) && !strings.Contains(got.Error(), want) {
			t.Errorf("%v, want %s", got, want)
		}
	}
	_, err := os.ReadFile(filepath.Join(dir, "none"))
	if !errors.Is(File(err), fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
	if other := errors.New("other"); File(other) != other || File(nil) != nil {
		t.Error("an error of another kind than a file's was changed")
	}
}

func TestNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := l.Addr().String()
	if _, err := net.Listen("tcp", taken); err == nil || Listen(taken, err).Error() != "listen on "+taken+": another program listens there" {
		t.Errorf("address in use: %v", Listen(taken, err))
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("SSH-2.0\r\n\r\n"))
			c.Close()
		}
	}()
	if _, err := http.Get("http://" + taken); err == nil || NetworkCause(err) != "the server there does not speak HTTP" {
		t.Errorf("no HTTP: %v", err)
	}
	l.Close()
	if _, err := http.Get("http://" + taken); err == nil || Network(taken, err).Error() != taken+": connection refused, nothing listens there" {
		t.Errorf("refused: %v", err)
	}
	for _, address := range []string{"127.0.0.1:99999", "127.0.0.1:http-of-some-kind"} {
		if _, err := net.Dial("tcp", address); err == nil || NetworkCause(err) != "the port must be a number from 1 to 65535" {
			t.Errorf("%s: %q", address, NetworkCause(err))
		}
	}
	if got := NetworkCause(&net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}); got != "the host h is unknown" {
		t.Error(got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:1"); err == nil || NetworkCause(err) != "no answer in time" {
		t.Errorf("timed out: %v", err)
	}
	if got := NetworkText("name resolver error: produced zero addresses"); got != "the host is unknown" {
		t.Error(got)
	}
	if got := NetworkText("out of tea"); got != "out of tea" {
		t.Error(got)
	}
}
