package tidy

import (
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pattern is a forbidden text, and what to do instead.
type pattern struct {
	re      *regexp.Regexp
	instead string
}

// words joins the parts of a word, so that this file does not contain what it forbids.
func words(halves ...string) string { return strings.Join(halves, "") }

func forbid(t *testing.T, patterns []pattern, in func(textFile) bool) {
	t.Helper()
	for _, f := range tree(t) {
		if !in(f) {
			continue
		}
		f.lines(func(number int, line string) {
			for _, p := range patterns {
				if hit := p.re.FindString(line); hit != "" {
					t.Errorf("%s:%d: %q\nTo fix it: %s", f.path, number, strings.TrimSpace(hit), p.instead)
				}
			}
		})
	}
}

func notGoSum(f textFile) bool { return f.path != "go.sum" }

func TestNothingIsLeftForLater(t *testing.T) {
	forbid(t, []pattern{{
		regexp.MustCompile(`\b(` + words("TO", "DO") + `|` + words("FIX", "ME") + `|` + words("X", "XX") + `)\b`),
		"do it, or describe in prose what does not work and why; open an issue for the rest.",
	}}, notGoSum)
}

// The test suite shows whether a machine is suitable. A skipped test would pass without showing
// anything.
func TestNoTestIsSwitchedOff(t *testing.T) {
	const remedy = "make the test run wherever `make test` does, or delete it."
	var b breaches
	for _, f := range goFiles(t) {
		if !f.isTest() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch _, name := selected(n); name {
			case "Skip", "Skipf", "SkipNow":
				b.add(f.path, f.line(n), "skips the test")
			}
			return true
		})
	}
	b.report(t, remedy)
	forbid(t, []pattern{{regexp.MustCompile(`@(Disabled|Ignore)\b|\bassume(True|False|That)\(`), remedy}},
		func(f textFile) bool { return f.ext() == ".java" })
}

func TestNoMockingLibraries(t *testing.T) {
	forbid(t, []pattern{{
		regexp.MustCompile(`(?i)mockito|easymock|powermock|gomock|testify|jmock`),
		"write a small fake that works (a disk in memory, a socket pair) or use the real thing.",
	}}, func(f textFile) bool {
		return f.path == "go.mod" || strings.HasSuffix(f.path, "pom.xml") || f.ext() == ".java"
	})
}

// The machine's configuration decides where packages come from, not the project.
func TestNoRegistryHosts(t *testing.T) {
	hosts := []string{
		words("repo", ".maven.apache.org"), words("repo1", ".maven.org"), words("proxy", ".golang.org"),
		words("sum", ".golang.org"), words("registry", ".npmjs.org"), words("pypi", ".org"),
		words("pythonhosted", ".org"), words("crates", ".io"), words("deb", ".debian.org"),
		words("security", ".debian.org"), words("rubygems", ".org"),
	}
	var quoted []string
	for _, h := range hosts {
		quoted = append(quoted, regexp.QuoteMeta(h))
	}
	forbid(t, []pattern{{
		regexp.MustCompile(strings.Join(quoted, "|")),
		"leave it to the configuration of go, mvn and apt-get; name the package only.",
	}}, func(textFile) bool { return true })
}

func TestNoPathsOfABuildMachine(t *testing.T) {
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	const remedy = "use a path from the checkout, a flag, or the test's temporary folder."
	forbid(t, []pattern{
		{regexp.MustCompile(`(^|[\s"'=(:\x60])/(home|Users|root|work|workspace|builds|go/src)/[\w.]`), remedy},
		{regexp.MustCompile(regexp.QuoteMeta(here) + `\b`), remedy},
	}, notGoSum)
}

// Each thing has one word; STYLE.md lists the words.
func TestOneWordForOneThing(t *testing.T) {
	forbid(t, []pattern{
		{regexp.MustCompile(`(?i)\b` + words("ten", "ants?") + `\b`), "weights belong to applications: say application."},
		{regexp.MustCompile(`(?i)\b` + words("job", "[ -]?weights?") + `\b`), "weights belong to applications: say weight."},
		{regexp.MustCompile(`(?i)\b` + words("noisy", "[ -]neighbou?rs?") + `\b`), "name the application that does it."},
		{regexp.MustCompile(`(?i)\b` + words("water", "[ -]?marks?") + `\b`), "say mark: it is how far a stream may go."},
	}, notGoSum)
	// Hadoop's own DataTransferThrottler may be named. Where the product is compared with it, it
	// must be named.
	forbid(t, []pattern{
		{regexp.MustCompile(`(?i)(^|[^\w])` + words("throt", "tlers?") + `\b`), "Penstock has a scheduler, a depth and a mark."},
	}, func(f textFile) bool {
		return f.in("core/") || f.in("node/") || f.in("wire/") || f.in("agent/") || f.in("sharedfs/")
	})
}

func TestShellScriptsParse(t *testing.T) {
	for _, f := range tree(t) {
		if !strings.HasPrefix(f.text, "#!") || !strings.Contains(strings.SplitN(f.text, "\n", 2)[0], "sh") {
			continue
		}
		cmd := exec.Command("bash", "-n", filepath.Join(root, f.path))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s\nTo fix it: bash -n %s shows the place.", f.path, err, out, f.path)
		}
		if !strings.Contains(f.text, "set -eu") {
			t.Errorf("%s: continues after an error.\nTo fix it: begin with set -euo pipefail.", f.path)
		}
		info, err := os.Stat(filepath.Join(root, f.path))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&0o111 == 0 {
			t.Errorf("%s: is not executable.\nTo fix it: chmod +x %s", f.path, f.path)
		}
	}
}

// Readers are international and read once. These phrases are correct or nearly so, but slow to
// read.
func TestPlainEnglish(t *testing.T) {
	forbid(t, []pattern{
		{regexp.MustCompile(`(?i)\b` + words("a", "new") + `\b`), "say again, restarts, replaces."},
		{regexp.MustCompile(`(?i)\b(is|are|be|been|was|were) ` + words("to", "ld") + `\b`), "say who sends what: receives, learns, is sent, is reported."},
		{regexp.MustCompile(`(?i)\b` + words("te", "lls") + ` (whether|whose|who)\b`), `say "reports whether", "returns the owner".`},
		{regexp.MustCompile(`(?i)\b` + words("leads", " on") + `\b`), "say keeps leading."},
		{regexp.MustCompile(`(?i)\b` + words("does not", " turn") + ` of\b`), "say that the loop is stalled."},
	}, func(f textFile) bool {
		return inPlainFolders(f) || f.in("agent/", "bpf/", "broker/", "core/", "docs/design/", "e2e/", "lab/", "node/", "ops/", "settings/", "tidy/", "wire/", "cmd/", "docs/operate/", "docs/reference/",
			"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile")
	})
	forbid(t, []pattern{
		{regexp.MustCompile(`(?i)\b` + words("te", "lls?") + ` (whether|whose|which|what)\b`), `say "reports whether", "shows which", "returns the owner".`},
		{regexp.MustCompile(`(?i)\b` + words("he", "ld") + ` against\b`), "say compared with, verified with, charged to."},
		{regexp.MustCompile(`(?i)\b` + words("ker", "nel's") + ` word\b`), "say as the kernel reports it."},
		{regexp.MustCompile(`(?i)\b` + words("for", " want") + ` of\b`), "say because there is no, or because it ran out."},
		{regexp.MustCompile(`(?i)\b` + words("as", " ever") + `\b`), "say as usual, as without Penstock."},
		{regexp.MustCompile(`(?i)\b` + words("who", "ever") + `\b`), "name the caller, the holder, everybody who."},
	}, inPlainFolders)
}

// inPlainFolders reports whether f is free of all phrases of TestPlainEnglish.
func inPlainFolders(f textFile) bool {
	return f.in("agent/", "bpf/", "deploy/", "docs/operate/", "docs/design/agent.md", "docs/design/attribution.md",
		"docs/design/kinds.md", "docs/design/sharedfs.md", "docs/design/spark.md", "docs/reference/doctor.md", "docs/reference/status.md", "sharedfs/",
		"wire/", "SECURITY.md")
}
