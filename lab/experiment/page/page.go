// Package page provides the frame of all HTML reports. A report is one file that loads no scripts,
// fonts or images, and is readable on a light and on a dark background.
package page

import (
	"html/template"
	"io"
)

// Page is a report to write.
type Page struct {
	// Headline is the result in a sentence; it is also the page's title.
	Headline string
	// Pending is the number of runs to do. While it is above 0, the page reloads itself.
	Pending int
	// Body is the data for the report's template.
	Body any
}

const frame = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
{{if .Pending}}<meta http-equiv="refresh" content="10"/>
{{end}}<title>{{.Headline}}</title>
<style>
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1b1b; --soft: #5f5f5f; --rule: #d0d0d0; --mark: #f1f5f9; --bad: #b00020; }
@media (prefers-color-scheme: dark) { :root { --ground: #16181c; --ink: #e6e6e6; --soft: #a0a0a0; --rule: #3a3d44; --mark: #20242b; --bad: #ff8a80; } }
body { background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.soft, figcaption { color: var(--soft); font-size: .88rem; } .bad { color: var(--bad); font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: right; padding: .3rem .55rem; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 600; font-size: .88rem; vertical-align: bottom; }
tr.marked td { background: var(--mark); }
figure { margin: .5rem 0 1rem; } svg { max-width: 100%; height: auto; }
details { border-top: 1px solid var(--rule); padding: .6rem 0; } summary { cursor: pointer; font-weight: 600; }
pre { background: var(--mark); padding: 1rem; overflow-x: auto; font-size: .82rem; line-height: 1.4; }
</style>
</head>
<body>
<h1>{{.Headline}}</h1>
{{if .Pending}}<p><b>Runs to do: {{.Pending}}. This page reloads itself.</b></p>
{{end}}{{template "body" .Body}}
</body>
</html>
`

// Template is a report's template.
type Template struct{ frame *template.Template }

// Must returns the template of a report, which consists of the frame and of body, the template of
// its content. It panics if body is not a valid template.
func Must(body string, functions template.FuncMap) Template {
	t := template.Must(template.New("frame").Funcs(functions).Parse(frame))
	template.Must(t.New("body").Parse(body))
	return Template{t}
}

// Write writes the page.
func (t Template) Write(w io.Writer, p Page) error { return t.frame.Execute(w, p) }
