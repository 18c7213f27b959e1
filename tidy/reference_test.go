package tidy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An operator learns of a setting or a metric from the manual alone.
func TestEverySettingAndMetricIsDocumented(t *testing.T) {
	const manual = "docs/operate/install.md"
	tag := regexp.MustCompile(`yaml:"([a-z_]+)"`)
	metric := regexp.MustCompile(`"(penstock_[a-z_]+)"`)
	var documented string
	wanted := map[string]string{}
	for _, f := range tree(t) {
		if f.path == manual {
			documented = f.text
		}
		if f.ext() != ".go" || f.isTest() {
			continue
		}
		if f.in("node/config/") {
			for _, m := range tag.FindAllStringSubmatch(f.text, -1) {
				wanted[m[1]] = f.path
			}
		}
		if f.in("node/") {
			for _, m := range metric.FindAllStringSubmatch(f.text, -1) {
				wanted[m[1]] = f.path
			}
		}
	}
	var missing []string
	for name, where := range wanted {
		if !strings.Contains(documented, "`"+name+"`") {
			missing = append(missing, name+" (in "+where+")")
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		t.Errorf("%s says nothing of:\n  %s\nTo mend: add a row that says what it means, its unit, range and default.",
			manual, strings.Join(missing, "\n  "))
	}
}
