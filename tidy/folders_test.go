package tidy

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// folderRow is the row of a folder in ARCHITECTURE.md's table of folders.
type folderRow struct {
	packages  []string // packages that are named as contents
	mayImport []string // other top folders that its code may import
	all       bool     // it may import any folder
}

// folderTable reads the table of folders in ARCHITECTURE.md, by folder.
func folderTable(t *testing.T) map[string]folderRow {
	t.Helper()
	var text string
	for _, f := range tree(t) {
		if f.path == "ARCHITECTURE.md" {
			text = f.text
		}
	}
	_, text, _ = strings.Cut(text, "\n| folder | contents | may import |\n")
	name := regexp.MustCompile("`([a-z0-9-]+)/?`")
	names := func(cell string) (all []string) {
		for _, m := range name.FindAllStringSubmatch(cell, -1) {
			all = append(all, m[1])
		}
		return all
	}
	table := map[string]folderRow{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			break // the end of the table
		}
		for _, folder := range names(cells[1]) {
			table[folder] = folderRow{names(cells[2]), names(cells[3]), strings.TrimSpace(cells[3]) == "all"}
		}
	}
	if len(table) < 10 {
		t.Fatalf("the table of folders in ARCHITECTURE.md has %d folders: the rule would check nothing", len(table))
	}
	return table
}

// Tests may import any folder.
func TestFoldersImportWhatTheArchitectureSays(t *testing.T) {
	table := folderTable(t)
	var b breaches
	for _, f := range goFiles(t) {
		folder, _, inFolder := strings.Cut(f.path, "/")
		row, known := table[folder]
		if !inFolder || !known {
			b.add(f.path, 1, "is in a folder that the architecture does not name")
			continue
		}
		if f.isTest() || row.all {
			continue
		}
		for _, imp := range f.ast.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			name, ours := strings.CutPrefix(name, "penstock/")
			other, _, _ := strings.Cut(name, "/")
			if ours && other != folder && !slices.Contains(row.mayImport, other) {
				b.add(f.path, f.line(imp), "%s/ imports %s", folder, name)
			}
		}
	}
	b.report(t, "move the code to the folder that may import it, or change the table in ARCHITECTURE.md.")
}

// An import that is listed but not used allows more than it should. A package that is not listed
// cannot be found.
func TestTheTableOfFoldersIsComplete(t *testing.T) {
	table := folderTable(t)
	imported := map[string]bool{} // "folder other"
	var b breaches
	seen := map[string]bool{}
	for _, f := range goFiles(t) {
		folder, below, _ := strings.Cut(f.path, "/")
		if f.isTest() {
			continue
		}
		for _, imp := range f.ast.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			if name, ours := strings.CutPrefix(name, "penstock/"); ours {
				other, _, _ := strings.Cut(name, "/")
				imported[folder+" "+other] = true
			}
		}
		part, _, nested := strings.Cut(below, "/")
		if dir := path.Join(folder, part); nested && !table[folder].all && !seen[dir] {
			seen[dir] = true
			if !slices.Contains(table[folder].packages, part) {
				b.add(dir, 1, "is not named as contents of %s/", folder)
			}
		}
	}
	for folder, row := range table {
		for _, other := range row.mayImport {
			if !imported[folder+" "+other] {
				b.add("ARCHITECTURE.md", 1, "%s/ may import %s, and does not", folder, other)
			}
		}
	}
	slices.Sort(b.found)
	b.report(t, "change the table in ARCHITECTURE.md.")
}

// TestNoLargeFiles checks that no file of the tree is as large as a built program.
func TestNoLargeFiles(t *testing.T) {
	const most = 256 << 10 // bytes
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if err == nil && slices.Contains(unread, entry.Name()) {
				return filepath.SkipDir
			}
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		if err == nil && info.Size() > most {
			t.Errorf("%s has %d bytes, more than %d: build programs into bin/, which git ignores", path, info.Size(), most)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
