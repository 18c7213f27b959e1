package tidy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// agentMayImport lists the packages of the agent that each of its packages may use. Code for Spark
// must not depend on code for Hadoop, nor the other way round; agent weaves all of them.
var agentMayImport = map[string][]string{
	"core":    {},
	"hdfs":    {"core"},
	"shuffle": {"core"},
	"task":    {"core"},
	"spark":   {"core"},
	"agent":   {"core", "hdfs", "shuffle", "spark"},
}

func TestTheAgentsPackagesHaveNoCircles(t *testing.T) {
	const main = "agent/src/main/java/penstock/"
	// A qualified name is a use without an import. Strings and comments are ignored.
	unread := regexp.MustCompile(`(?s)""".*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/`)
	used := regexp.MustCompile(`\bpenstock\.(\w+)\.`)
	seen := 0
	var b breaches
	for _, f := range tree(t) {
		rest, in := strings.CutPrefix(f.path, main)
		if !in || f.ext() != ".java" {
			continue
		}
		seen++
		folder, _, _ := strings.Cut(rest, "/")
		allowed, known := agentMayImport[folder]
		if !known {
			b.add(f.path, 1, "is in a package that has no rule")
		}
		for _, m := range used.FindAllStringSubmatch(unread.ReplaceAllString(f.text, " "), -1) {
			if m[1] != folder && !slices.Contains(allowed, m[1]) {
				b.add(f.path, 1, "penstock.%s uses penstock.%s", folder, m[1])
			}
		}
	}
	if seen < 40 {
		t.Fatalf("%d files below %s: the rule would check nothing", seen, main)
	}
	b.report(t, "move code that both need to penstock.core, or code that weaves to penstock.agent.")
}
