package main

import (
	"testing"

	"penstock/cmd/internal/cli"
)

func TestTheReferenceIsUpToDate(t *testing.T) {
	stale, err := cli.StaleReference(newRoot(), "../../docs/reference/cli", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stale {
		t.Errorf("docs/reference/cli/%s differs from the command's help.\nTo fix it: run make reference", name)
	}
}
