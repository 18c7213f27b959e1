package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the module's folder as seen from the tests, which run in tidy/.
const root = ".."

// unread are folders with downloaded or built files, and git's own folder.
var unread = []string{".git", ".cache", "bin", "dist", "run", "report", "target"}

// textFile is one file of the tree that people wrote.
type textFile struct {
	path string // from the module's folder, with slashes
	text string
}

func (f textFile) ext() string { return filepath.Ext(f.path) }

// in reports whether the file is below one of the folders.
func (f textFile) in(folders ...string) bool {
	return slices.ContainsFunc(folders, func(d string) bool { return strings.HasPrefix(f.path, d) })
}

func (f textFile) isTest() bool {
	return strings.HasSuffix(f.path, "_test.go") || strings.Contains(f.path, "/src/test/")
}

// lines calls visit with each line and its number, counted from 1.
func (f textFile) lines(visit func(number int, line string)) {
	for i, line := range strings.Split(f.text, "\n") {
		visit(i+1, line)
	}
}

func (f textFile) lineCount() int { return strings.Count(f.text, "\n") }

// tree reads every text file of the module.
func tree(t *testing.T) []textFile {
	t.Helper()
	var files []textFile
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(unread, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || entry.Name() == ".git" { // a file in a worktree
			return nil
		}
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil // a file that was deleted meanwhile, such as an editor's
		}
		if err != nil {
			return err
		}
		if bytes.IndexByte(content, 0) >= 0 {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files = append(files, textFile{filepath.ToSlash(rel), string(content)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// goFile is a parsed file of the tree.
type goFile struct {
	textFile
	fset *token.FileSet
	ast  *ast.File
}

func (f goFile) line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

func goFiles(t *testing.T) []goFile {
	t.Helper()
	fset := token.NewFileSet()
	var parsed []goFile
	for _, f := range tree(t) {
		if f.ext() != ".go" {
			continue
		}
		file, err := parser.ParseFile(fset, f.path, f.text, parser.ParseComments)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		parsed = append(parsed, goFile{f, fset, file})
	}
	if len(parsed) == 0 {
		t.Fatal("no Go files found: these tests must run in tidy/ of a checkout")
	}
	return parsed
}

// breaches collects the findings of a rule. report reports them once, with the remedy.
type breaches struct {
	found []string
}

func (b *breaches) add(path string, line int, format string, args ...any) {
	b.found = append(b.found, fmt.Sprintf("%s:%d: %s", path, line, fmt.Sprintf(format, args...)))
}

func (b *breaches) report(t *testing.T, remedy string) {
	t.Helper()
	if len(b.found) > 0 {
		t.Errorf("%s\nTo fix it: %s", strings.Join(b.found, "\n"), remedy)
	}
}

// selected returns the package name and the selector of an expression such as time.Now.
func selected(n ast.Node) (pkg, name string) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	return id.Name, sel.Sel.Name
}
