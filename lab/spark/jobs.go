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
	MLlib     = "mllib.py"
)

// orders is a module that programs import.
const orders = "orders.py"

// Script writes one of the programs into dir, with the module that it imports, and returns its path.
func Script(dir, name string) (string, error) {
	for _, file := range []string{orders, name} {
		text, err := jobs.ReadFile("jobs/" + file)
		if err != nil {
			return "", fmt.Errorf("no program %q: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, name), nil
}
