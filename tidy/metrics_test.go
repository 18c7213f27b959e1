package tidy

import (
	"encoding/json"
	"go/ast"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exportedMetrics returns the names of the metrics of the daemon and of the brokers, as the code declares them: desc(NAME, ...), or the
// field Name of a metric's options.
func exportedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	literal := func(e ast.Expr) string {
		l, ok := e.(*ast.BasicLit)
		if !ok {
			return ""
		}
		text, _ := strconv.Unquote(l.Value)
		return text
	}
	for _, f := range goFiles(t) {
		if !f.in("node/", "broker/") || f.isTest() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if of, ok := n.Fun.(*ast.Ident); ok && of.Name == "desc" && len(n.Args) > 1 && literal(n.Args[0]) != "" {
					names["penstock_"+literal(n.Args[0])] = true
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Name" && strings.HasPrefix(literal(n.Value), "penstock_") {
					names[literal(n.Value)] = true
				}
			}
			return true
		})
	}
	if len(names) < 80 {
		t.Fatalf("only %d metrics found in node/ and broker/: this test does not recognise how they are declared", len(names))
	}
	return names
}

var metricName = regexp.MustCompile(`\bpenstock_[a-z0-9_]+`)

// Alerts and dashboards with a misspelt or removed metric never show anything, and nobody notices.
func TestAlertsAndDashboardsUseExportedMetrics(t *testing.T) {
	exported := exportedMetrics(t)
	var bad breaches
	files := 0
	for _, f := range tree(t) {
		if !f.in("deploy/prometheus/", "deploy/grafana/") {
			continue
		}
		files++
		f.lines(func(number int, line string) {
			for _, name := range metricName.FindAllString(line, -1) {
				if base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum"); !exported[name] && !exported[base] {
					bad.add(f.path, number, "%s", name)
				}
			}
		})
	}
	if files < 3 {
		t.Errorf("%d files of alerts and dashboards in deploy/, expected at least 3", files)
	}
	bad.report(t, "no such metric is exported by node/ or broker/: correct the name")
}

// The tables of the documents are all that an operator knows of a metric.
func TestEveryMetricIsDocumented(t *testing.T) {
	exported := exportedMetrics(t)
	row := regexp.MustCompile("(?m)^\\| `(penstock_[a-z0-9_]+)` \\|")
	documented := map[string]bool{}
	var bad breaches
	for _, f := range tree(t) {
		if f.path != "docs/operate/metrics.md" && f.path != "docs/operate/broker.md" {
			continue
		}
		for _, m := range row.FindAllStringSubmatch(f.text, -1) {
			if documented[m[1]] = true; !exported[m[1]] {
				bad.add(f.path, 1, "%s is not exported", m[1])
			}
		}
	}
	for name := range exported {
		if !documented[name] {
			bad.add("docs/operate/metrics.md", 1, "%s has no row", name)
		}
	}
	slices.Sort(bad.found)
	bad.report(t, "give each metric one row in docs/operate/metrics.md or docs/operate/broker.md")
}

func TestDashboardsAreComplete(t *testing.T) {
	var bad breaches
	for _, f := range tree(t) {
		if !f.in("deploy/grafana/") {
			continue
		}
		var d struct {
			UID, Title string
			Panels     []struct {
				ID      int
				Title   string
				GridPos struct{ X, Y, W, H int }
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal([]byte(f.text), &d); err != nil {
			bad.add(f.path, 1, "%v", err)
			continue
		}
		if d.UID == "" || d.Title == "" || len(d.Panels) == 0 {
			bad.add(f.path, 1, "a dashboard has a uid, a title and panels")
		}
		ids := map[int]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.Title == "" || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 || len(p.Targets) == 0 {
				bad.add(f.path, 1, "panel %d %q: it needs an id of its own, a title, a place within 24 columns, and a query", p.ID, p.Title)
			}
			ids[p.ID] = true
			for _, target := range p.Targets {
				if !metricName.MatchString(target.Expr) {
					bad.add(f.path, 1, "panel %d %q: %q has no metric of Penstock", p.ID, p.Title, target.Expr)
				}
			}
		}
	}
	bad.report(t, "correct the dashboard")
}
