package kdc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/lab/ledger"
)

func TestServer(t *testing.T) {
	dir := t.TempDir()
	book, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := Start(t.Context(), Options{Book: book, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add(t.Context(), `-maxlife "2 seconds"`, "penstock", "HTTP/localhost"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "keytab")
	if err := s.Keytab(t.Context(), file, "penstock", "HTTP/localhost"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "penstock") || !strings.Contains(string(text), "localhost") {
		t.Errorf("%q, %v", text, err)
	}
	if err := s.Add(t.Context(), "", "penstock"); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("a principal is added twice: %v", err)
	}
	if err := s.Keytab(t.Context(), file, "nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("a key of nobody: %v", err)
	}
	if err := s.Delete(t.Context(), "penstock"); err != nil {
		t.Error(err)
	}
	s.Kill()
	if err := s.Start(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
