package tidy

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pure are the packages that core/ may import. They do no I/O, and return the same results for the
// same arguments. time is allowed for its types.
var pure = []string{
	"bytes", "cmp", "container/heap", "container/list", "encoding/binary", "errors", "fmt", "iter", "math", "math/big",
	"math/bits", "path", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
}

// clock are the names of package time that read the clock or wait.
var clock = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

func coreFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	for _, f := range goFiles(t) {
		if f.in("core/") && !f.isTest() {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		t.Fatal("no files in core/: the rule would check nothing")
	}
	return files
}

func TestCoreIsPure(t *testing.T) {
	var b breaches
	for _, f := range coreFiles(t) {
		for _, imp := range f.ast.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			if !slices.Contains(pure, name) && !strings.HasPrefix(name, "penstock/core/") {
				b.add(f.path, f.line(imp), "imports %s", name)
			}
			if imp.Name != nil {
				b.add(f.path, f.line(imp), "imports %s under another name, which hides it from this test", name)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt:
				b.add(f.path, f.line(n), "starts a goroutine")
			case *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
				b.add(f.path, f.line(n), "uses a channel")
			}
			if pkg, name := selected(n); pkg == "time" && slices.Contains(clock, name) {
				b.add(f.path, f.line(n), "reads the clock (time.%s)", name)
			}
			return true
		})
	}
	b.report(t, "core/ is driven by the daemon, the tests and a simulator alike: take the time and every input "+
		"as an argument, return what is to be done, and leave clocks, goroutines, locks and I/O to the caller in node/.")
}

// Types are needed here, because a range over a map looks like a range over a slice.
func TestCoreDoesNotRangeOverMaps(t *testing.T) {
	if build.Default.GOROOT == "" { // the test was compiled with -trimpath
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			t.Fatal(err)
		}
		build.Default.GOROOT = strings.TrimSpace(string(root))
	}
	byPackage := map[string][]goFile{}
	for _, f := range coreFiles(t) {
		byPackage[path.Dir(f.path)] = append(byPackage[path.Dir(f.path)], f)
	}
	var b breaches
	for dir, files := range byPackage {
		info := types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
		var asts []*ast.File
		for _, f := range files {
			asts = append(asts, f.ast)
		}
		conf := types.Config{Importer: importer.ForCompiler(files[0].fset, "source", nil)}
		if _, err := conf.Check("penstock/"+dir, files[0].fset, asts, &info); err != nil {
			t.Fatalf("%s does not type-check: %v", dir, err)
		}
		for _, f := range files {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				loop, ok := n.(*ast.RangeStmt)
				if !ok {
					return true
				}
				if _, isMap := info.TypeOf(loop.X).Underlying().(*types.Map); isMap {
					b.add(f.path, f.line(n), "ranges over a map")
				}
				return true
			})
		}
	}
	b.report(t, "the order of a map differs from run to run, and decisions must not: keep a slice, or sort the keys first.")
}

// A further algorithm is one new file. The central ones must be short enough to be read at once and
// compared with the paper.
func TestCentralFilesStayShort(t *testing.T) {
	bounds := []struct {
		path  string
		lines int
	}{
		{"core/sfq/sfq.go", 400},
		{"core/depth/depth.go", 200},
		{"wire/codec.go", 200},
		{"agent/src/main/java/penstock/core/Frames.java", 200},
		{"cmd/penstock/main.go", 100},
		{"ARCHITECTURE.md", 150},
		{"README.md", 120},
		{"STYLE.md", 80},
	}
	var b breaches
	for _, f := range tree(t) {
		for _, bound := range bounds {
			if f.path == bound.path && f.lineCount() >= bound.lines {
				b.add(f.path, f.lineCount(), "has %d lines, must stay under %d", f.lineCount(), bound.lines)
			}
		}
	}
	b.report(t, "move code that is not the algorithm itself (dump, validation, bookkeeping) to a file of its own beside it.")
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	type pkg struct{ documented, seen bool }
	packages := map[string]*pkg{}
	for _, f := range goFiles(t) {
		if f.isTest() && !strings.HasPrefix(f.path, "e2e/") {
			continue
		}
		dir := path.Dir(f.path)
		if packages[dir] == nil {
			packages[dir] = &pkg{}
		}
		packages[dir].seen = true
		if f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != "" {
			packages[dir].documented = true
		}
	}
	var b breaches
	for dir, p := range packages {
		if !p.documented {
			b.add(dir, 1, "no file has a package comment")
		}
	}
	slices.Sort(b.found)
	b.report(t, `write "Package x ..." above the package clause: the problem, the design and why, with the paper's section.`)
}

// In the product, only node/control changes the running system. It and the laboratory record each change
// before they make it, so that the change is undone even after a crash.
func TestOnlyControlChangesTheSystem(t *testing.T) {
	writes := map[string][]string{
		"os":      {"WriteFile", "OpenFile", "Create", "Mkdir", "MkdirAll", "Remove"},
		"unix":    {"Mount", "Unmount", "Setxattr", "Open", "Openat", "Mkdir"},
		"syscall": {"Mount", "Unmount", "Setxattr", "Open", "Mkdir"},
	}
	// These change other processes, mounts or interfaces, whatever they are called with.
	changes := map[string][]string{
		"unix":    {"FanotifyInit", "FanotifyMark", "PidfdGetfd", "PidfdSendSignal"},
		"netlink": {"QdiscAdd", "QdiscReplace", "QdiscDel", "ClassAdd", "ClassReplace", "ClassDel", "FilterAdd", "FilterReplace", "FilterDel", "LinkAdd", "LinkDel", "LinkSetUp"},
	}
	var b breaches
	for _, f := range goFiles(t) {
		// ops/network changes only namespaces that it has made itself, and that end with it.
		if f.isTest() || f.in("lab/") || f.in("node/control/") || f.in("ops/network/") {
			continue
		}
		for _, decl := range f.ast.Decls {
			var system, write ast.Node
			var what string
			ast.Inspect(decl, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if s, err := strconv.Unquote(lit.Value); err == nil &&
						(strings.HasPrefix(s, "/sys/") || strings.HasPrefix(s, "/proc/sys/")) {
						system = n
					}
				}
				pkg, name := selected(n)
				if slices.Contains(writes[pkg], name) {
					write, what = n, pkg+"."+name
				}
				if slices.Contains(changes[pkg], name) {
					b.add(f.path, f.line(n), "%s.%s changes the system", pkg, name)
				}
				return true
			})
			if system != nil && write != nil {
				b.add(f.path, f.line(write), "%s in a function that names a file of /sys or /proc/sys", what)
			}
		}
	}
	b.report(t, "changes of the system belong to node/control, and those of a test machine to lab/: both record them and put them back.")
}
