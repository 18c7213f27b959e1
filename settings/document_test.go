package settings

import (
	"strings"
	"testing"
)

type sample struct {
	Name  string            `yaml:"name"`
	Size  Bytes             `yaml:"size"`
	Wait  Duration          `yaml:"wait"`
	Count int               `yaml:"count"`
	Share float64           `yaml:"share"`
	On    bool              `yaml:"on"`
	Parts []sample          `yaml:"parts" entry:"a part"`
	Named map[string]sample `yaml:"named"`
	Inner *sample           `yaml:"inner"`
	Words []string          `yaml:"words"`
	Long  int64             `json:"long_name,omitempty"`
}

func TestDocument(t *testing.T) {
	var s sample
	d, err := ParseDocument([]byte("name: a\nsize: 2MiB\nwait: 1m30s\ncount: 2.0\nshare: 3\non: true\nlong_name: 9\nwords: [x, 5]\ninner: {name: b}\nnamed: {c.d: {count: 1}}\nparts: [{}, {name: e}]\n"), "the sample", &s)
	if err != nil || d.Err() != nil {
		t.Fatal(err, d.Err())
	}
	if s.Size != 2<<20 || s.Count != 2 || s.Share != 3 || !s.On || s.Long != 9 || s.Words[1] != "5" || s.Inner.Name != "b" || s.Named["c.d"].Count != 1 || s.Parts[1].Name != "e" {
		t.Errorf("%+v", s)
	}
	if !d.Has("parts", 1, "name") || d.Has("parts", 0, "name") || d.Has("parts", 2) || d.Line("parts", 1) != 11 || d.Line("none") != 0 {
		t.Error("Has or Line returned a wrong result")
	}
	if line, column := d.Place("parts[1]: name e: bad"); line != 11 || column != 14 {
		t.Errorf("line %d, column %d", line, column)
	}
}

func TestMistakesOfADocument(t *testing.T) {
	for text, want := range map[string]string{
		"count: 1.5": `line 1, column 8: count: "1.5": give a whole number`, "count: [1]": "line 1, column 8: count: give a whole number",
		"share: much": `share: "much": give a number`, "on: 3": `on: "3": give true or false`, "name: {a: b}": "name: give a text",
		"size: 10MBps": `size: "10MBps": use a number of bytes such as 10MiB`, "size: 2 mb": "such as 2MiB", "size: 3g/s": "such as 3GiB",
		"wait: 5": `wait: "5": use a duration with a unit`, "parts: 3": `parts is a list: begin each entry with "- "`,
		"parts: [x]": "a part must be a mapping of fields: name, size, wait, count, share, on and others", "named: [a]": "named must be a mapping",
		"inner: {nam: x}": `inner has no field "nam": did you mean name?`, "named: {a: {}, a: {}}": `named: "a" is given twice`,
		"a: &a [*a]": "there are count", "- 1": "the sample must be a mapping of fields", "{": "not YAML", "count: 1\n---\ncount: 2": "more than one document",
		"<<: 3": "<< merges mappings", "parts: [{parts: [{count: x}]}]": `line 1, column 26: count: "x"`,
	} {
		var s sample
		d, err := ParseDocument([]byte(text), "the sample", &s)
		if err == nil {
			err = d.Err()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestAliasesAreBounded checks that a small file with many aliases takes little time and memory.
func TestAliasesAreBounded(t *testing.T) {
	text := "words: &w [" + strings.Repeat("a,", 5000) + "]\ninner: &p {words: *w}\nparts: [" + strings.Repeat("*p,", 5000) + "]\n"
	var s sample
	d, err := ParseDocument([]byte(text), "the sample", &s)
	if err != nil || d.Err() == nil || !strings.Contains(d.Err().Error(), "aliases make the document too large") {
		t.Error(err, d.Err())
	}
	s = sample{}
	if d, err = ParseDocument([]byte("inner: &a {<<: *a, name: x, inner: *a}\n"), "the sample", &s); err != nil || d.Err() == nil {
		t.Error("a mapping that contains itself was accepted")
	}
}

func FuzzDocument(f *testing.F) {
	f.Add("parts: [&p {count: 1}, {<<: *p, size: 2MiB}]\nnamed: {a: *p}\n")
	f.Add("inner: &a {<<: [*a], inner: *a}")
	f.Fuzz(func(t *testing.T, text string) {
		var s sample
		d, err := ParseDocument([]byte(text), "the sample", &s)
		if err != nil {
			return
		}
		if d.Err() != nil && d.Err().Error() == "" {
			t.Error("mistakes without a message")
		}
		d.Wrong("parts", 0)
		d.Place("parts[0]: size 3: bad")
	})
}
