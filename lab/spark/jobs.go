package spark

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed jobs/*.py
var jobs embed.FS

// The programs of this package. The head of each program describes what it does and its arguments.
const (
	TPCH      = "tpch.py"
	Sort      = "sort.py"
	WordCount = "wordcount.py"
)

// Script writes one of the programs into dir and returns its path.
func Script(dir, name string) (string, error) {
	text, err := jobs.ReadFile("jobs/" + name)
	if err != nil {
		return "", fmt.Errorf("no program %q: %w", name, err)
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, text, 0o644)
}
