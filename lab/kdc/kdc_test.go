package kdc

import (
	"os"
	"strings"
	"testing"
)

func TestServer(t *testing.T) {
	s := ForTest(t, `-maxlife "2 seconds"`)
	file := s.User
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "penstock") {
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
