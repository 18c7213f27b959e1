package tidy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An operator learns of a setting or a metric from the manual alone, and must
// not look in vain for one that it names.
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
		if f.in("node/") {
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
		t.Errorf("%s says nothing of:\n  %s\nTo mend: add a row that says what it means, its unit, range and default.",
			manual, strings.Join(missing, "\n  "))
	}
	for _, m := range named.FindAllStringSubmatch(documented, -1) {
		if _, ok := metrics["penstock_"+m[1]]; !ok {
			t.Errorf("%s names the metric penstock_%s, which nothing exports.\nTo mend: delete or rename it there.", manual, m[1])
		}
	}
}
