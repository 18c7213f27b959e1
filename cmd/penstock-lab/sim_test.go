package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/cmd/internal/cli"
)

func TestSimCommand(t *testing.T) {
	dir := t.TempDir()
	scenario := filepath.Join(dir, "s.yaml")
	text := "title: two\nlength: 20s\nsettle: 5s\nwindow: 5s\nnodes: [{count: 2, rate: 12000000}]\n" +
		"applications: [{name: a, on: [0]}, {name: b}, {name: c}]\nexpect: {misplaced: 0.05}\n"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(scenario, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := newRoot()
		cmd.SetOut(&out)
		cmd.SetErr(&bytes.Buffer{})
		cmd.SetArgs(append([]string{"sim", scenario}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	write(text)
	page := filepath.Join(dir, "page.html")
	if _, err := run("--seed", "5", "--report", page); err != nil {
		t.Fatal(err)
	}
	if html, err := os.ReadFile(page); err != nil || !bytes.Contains(html, []byte("<svg")) || !bytes.Contains(html, []byte("seed 5")) {
		t.Errorf("the page: %v: %.200s", err, html)
	}
	var result struct {
		Seed uint64 `json:"seed"`
		Good bool   `json:"good"`
	}
	out, err := run("--seed", "5", "--json", "-")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || result.Seed != 5 || !result.Good {
		t.Errorf("the JSON: %v: %.200s", err, out)
	}
	write(strings.Replace(text, "misplaced: 0.05", "misplaced: 0.00001", 1))
	if _, err := run("--seed", "5"); err == nil || !strings.Contains(err.Error(), "at most 0.0000 should be") {
		t.Errorf("a scenario that expects too much: %v", err)
	}
	write(strings.Replace(text, "on: [0]", "on: [7]", 1))
	var usage cli.UsageError
	if _, err := run(); !errors.As(err, &usage) || !strings.Contains(err.Error(), "there is no node 7: the scenario has 2") {
		t.Errorf("a mistake in the scenario: %v", err)
	}
}
