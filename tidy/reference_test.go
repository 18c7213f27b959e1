package tidy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"penstock/node/config"
)

// Operators learn about a setting or a metric only from the manual. So the manual must have all of
// them, and no others.
func TestTheManualMatchesSettingsAndMetrics(t *testing.T) {
	const manual = "docs/operate/"
	tag := regexp.MustCompile(`yaml:"([a-z_]+)"`)
	metric := regexp.MustCompile(`desc\("([a-z_]+)"|"penstock_([a-z_]+)"`)
	named := regexp.MustCompile("`penstock_([a-z_]+)`")
	var text strings.Builder
	settings, metrics := map[string]string{}, map[string]string{}
	for _, f := range tree(t) {
		if f.in(manual) {
			text.WriteString(f.text)
		}
		if f.ext() != ".go" || f.isTest() {
			continue
		}
		if f.in("node/config/") {
			for _, m := range tag.FindAllStringSubmatch(f.text, -1) {
				settings[m[1]] = f.path
			}
		}
		if f.in("node/") || f.in("broker/") {
			for _, m := range metric.FindAllStringSubmatch(f.text, -1) {
				metrics["penstock_"+m[1]+m[2]] = f.path
			}
		}
	}
	documented := text.String()
	var missing []string
	for _, wanted := range []map[string]string{settings, metrics} {
		for name, where := range wanted {
			if !strings.Contains(documented, "`"+name+"`") {
				missing = append(missing, name+" (in "+where+")")
			}
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		t.Errorf("%s does not mention:\n  %s\nTo fix it: add a row with its meaning, unit, range and default.",
			manual, strings.Join(missing, "\n  "))
	}
	for _, m := range named.FindAllStringSubmatch(documented, -1) {
		if _, ok := metrics["penstock_"+m[1]]; !ok {
			t.Errorf("%s names the metric penstock_%s, which nothing exports.\nTo fix it: delete or rename it there.", manual, m[1])
		}
	}
}

// Operators copy the examples, so the examples must work.
func TestTheManualsExamplesLoad(t *testing.T) {
	var manual string
	for _, f := range tree(t) {
		if f.path == "docs/operate/install.md" {
			manual = f.text
		}
	}
	example := func(first string) string {
		_, rest, ok := strings.Cut(manual, "\n    "+first)
		if !ok {
			t.Fatalf("install.md has no example that begins with %q", first)
		}
		block, _, _ := strings.Cut("    "+first+rest, "\n\n")
		file := filepath.Join(t.TempDir(), "example.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(block, "\n    ", "\n")[4:]), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const remedy = "To fix it: correct the example in docs/operate/install.md."
	if _, err := config.LoadNode(example("socket: ")); err != nil {
		t.Errorf("the settings: %v\n%s", err, remedy)
	}
	if _, err := config.LoadWeights(example("mode: enforce")); err != nil {
		t.Errorf("the weights: %v\n%s", err, remedy)
	}
}
