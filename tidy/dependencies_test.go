package tidy

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each library must be updated, trusted and explained. docs/dependencies.md has a line with the
// reason for each.
func TestEveryDependencyHasAReason(t *testing.T) {
	var reasons, gomod string
	var poms []textFile
	for _, f := range tree(t) {
		switch {
		case f.path == "docs/dependencies.md":
			reasons = f.text
		case f.path == "go.mod":
			gomod = f.text
		case strings.HasSuffix(f.path, "pom.xml"):
			poms = append(poms, f)
		}
	}

	// Imports decide, and not which modules go.mod lists as direct.
	var modules []string
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:require )?([\w.-]+\.[\w.-]+/\S+) v`).FindAllStringSubmatch(gomod, -1) {
		modules = append(modules, m[1])
	}
	slices.SortFunc(modules, func(a, b string) int { return len(b) - len(a) }) // longest prefix first
	used := map[string]string{}
	for _, f := range goFiles(t) {
		for _, imp := range f.ast.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			for _, m := range modules {
				if name == m || strings.HasPrefix(name, m+"/") {
					used[m] = f.path
					break
				}
			}
		}
	}
	// A Maven project names its dependencies by group and artifact. Hadoop's artifacts need only
	// one line together.
	artifact := regexp.MustCompile(`(?s)<dependency>.*?<artifactId>([^<]+)</artifactId>`)
	for _, pom := range poms {
		for _, m := range artifact.FindAllStringSubmatch(pom.text, -1) {
			name := m[1]
			if strings.HasPrefix(name, "hadoop-") {
				name = "hadoop"
			}
			used[name] = pom.path
		}
	}
	var missing []string
	for name, where := range used {
		if !strings.Contains(reasons, name) {
			missing = append(missing, name+" (used in "+where+")")
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		t.Errorf("docs/dependencies.md gives no reason for:\n  %s\nTo fix it: do without the library, or add a line.",
			strings.Join(missing, "\n  "))
	}
	// The reverse: a line for a library that is not used misleads.
	for _, m := range regexp.MustCompile(`(?m)^\| ([\w.-]+\.\w+/\S+) \|`).FindAllStringSubmatch(reasons, -1) {
		if _, ok := used[m[1]]; !ok && !slices.Contains(tools, m[1]) {
			t.Errorf("docs/dependencies.md gives a reason for %s, which nothing imports.\nTo fix it: delete the line.", m[1])
		}
	}
}

// The Maven projects have no common parent, but one version of each plug-in, of Hadoop and of JUnit.
func TestMavenProjectsUseTheSameVersions(t *testing.T) {
	pinned := regexp.MustCompile(`<artifactId>(maven-[\w-]+)</artifactId>\s*<version>([^<]+)</version>|<((?:hadoop|junit)\.version)>([^<]+)<`)
	first := map[string][2]string{} // version and file
	var b breaches
	projects := 0
	for _, f := range tree(t) {
		if !strings.HasSuffix(f.path, "pom.xml") {
			continue
		}
		projects++
		for _, m := range pinned.FindAllStringSubmatch(f.text, -1) {
			name, version := m[1]+m[3], m[2]+m[4]
			if seen, ok := first[name]; !ok {
				first[name] = [2]string{version, f.path}
			} else if seen[0] != version {
				b.add(f.path, 1, "%s is %s, and %s in %s", name, version, seen[0], seen[1])
			}
		}
	}
	if projects < 2 || len(first) < 6 {
		t.Fatalf("%d versions in %d projects: the rule would check nothing", len(first), projects)
	}
	b.report(t, "use one version in all pom.xml files.")
}

// tools run at versions that the Makefile and scripts/ pin; they are not imported.
var tools = []string{"honnef.co/go/tools", "github.com/goreleaser/nfpm/v2", "github.com/CycloneDX/cyclonedx-gomod"}
