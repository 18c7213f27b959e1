package tidy

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport are the top folders that a folder's code may import besides itself, as the table
// in ARCHITECTURE.md has them. Tests may import anything.
var mayImport = map[string][]string{
	"core":     {},
	"settings": {},
	"bpf":      {},
	"deploy":   {},
	"wire":     {"settings"},
	"node":     {"core", "wire", "settings", "bpf"},
	"broker":   {"core", "wire", "settings"},
	"ops":      {"core", "node", "broker", "wire", "settings", "deploy"},
	"lab":      {"core", "node", "broker", "wire", "settings", "ops"},
	"cmd":      {"core", "node", "broker", "wire", "settings", "ops", "lab"},
	"tidy":     {},
}

func TestFoldersImportWhatTheArchitectureSays(t *testing.T) {
	var b breaches
	for _, f := range goFiles(t) {
		folder, _, inFolder := strings.Cut(f.path, "/")
		allowed, known := mayImport[folder]
		if f.isTest() || folder == "e2e" {
			continue
		}
		if !inFolder || !known {
			b.add(f.path, 1, "is in a folder that the architecture does not name")
			continue
		}
		for _, imp := range f.ast.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			name, ours := strings.CutPrefix(name, "penstock/")
			other, _, _ := strings.Cut(name, "/")
			if ours && other != folder && !slices.Contains(allowed, other) {
				b.add(f.path, f.line(imp), "%s/ imports %s", folder, name)
			}
		}
	}
	b.report(t, "move the code to the folder that may import it, or change the table here and in ARCHITECTURE.md.")
}
