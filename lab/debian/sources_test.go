package debian

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const key = "/usr/share/keyrings/debian.gpg"

func TestOneLineStyle(t *testing.T) {
	got := parseLines(`# deb http://commented.example bookworm main
deb http://mirror.example/debian bookworm main contrib # and a comment
deb-src http://mirror.example/debian bookworm main
deb [ arch=amd64 signed-by=` + key + ` trusted="yes" ] https://mirror.example/debian   sid	main
deb [arch=amd64 http://mirror.example/open bookworm main
deb http://mirror.example/flat ./
debian http://mirror.example/debian bookworm main
`)
	want := []source{
		{uri: "http://mirror.example/debian", suite: "bookworm", components: []string{"main", "contrib"}},
		{uri: "https://mirror.example/debian", suite: "sid", components: []string{"main"}, signedBy: key, trusted: "yes"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParagraphStyle(t *testing.T) {
	got := parseParagraphs(`# the first paragraph
Types: deb deb-src
# in between
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: ` + key + `

Types: deb-src
URIs: http://mirror.example/sources
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: http://mirror.example/disabled
Suites: bookworm
Components: main


types: deb
uris: http://mirror.example/keys
suites: sid
components:
 main
 contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQ==
Trusted: yes`)
	want := []source{
		{uri: "http://mirror.example/debian", suite: "bookworm", components: []string{"main"}, signedBy: key},
		{uri: "http://mirror.example/debian", suite: "bookworm-updates", components: []string{"main"}, signedBy: key},
		{uri: "http://mirror.example/keys", suite: "sid", components: []string{"main", "contrib"},
			signedBy: "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQ==", trusted: "yes"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// What is written for apt-get has the same meaning when it is read again, also with a key of several lines.
func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	s := source{uri: "http://mirror.example/debian", suite: "bookworm", components: []string{"main"}, signedBy: "\n -----BEGIN\n .\n mQ==", trusted: "yes"}
	got := parseParagraphs(s.with("sid"))
	other := s
	other.suite = "sid"
	if want := []source{s, other}; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := parseParagraphs(s.with("bookworm")); len(got) != 1 {
		t.Errorf("the same suite twice: %+v", got)
	}
}

// etc makes a folder with the given files.
func etc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const bookworm = "ID=debian\nVERSION_CODENAME=bookworm\n"

func TestArchiveIsTheMachinesOwn(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		uri   string
	}{
		"one-line": {map[string]string{"apt/sources.list": "deb http://own.example bookworm main\n"}, "http://own.example"},
		"other archives come first": {map[string]string{
			"apt/sources.list":                   "deb http://other.example nodistro main\ndeb http://security.example bookworm-security main\n",
			"apt/sources.list.d/a.list":          "deb http://extra.example bookworm non-free\n",
			"apt/sources.list.d/b.list.disabled": "deb http://disabled.example bookworm main\n",
			"apt/sources.list.d/debian.sources":  "Types: deb\nURIs: http://own.example\nSuites: bookworm-updates bookworm\nComponents: main\n",
		}, "http://own.example"},
		"by the name of its state": {map[string]string{"apt/sources.list": "deb http://own.example stable main\n"}, "http://own.example"},
		"the release before sid": {map[string]string{
			"apt/sources.list": "deb http://sid.example sid main\ndeb http://own.example bookworm main\n"}, "http://own.example"},
	} {
		t.Run(name, func(t *testing.T) {
			test.files["os-release"] = bookworm
			s, err := archive(etc(t, test.files))
			if err != nil || s.uri != test.uri {
				t.Errorf("got %+v, %v", s, err)
			}
		})
	}
}

func TestWithoutAnArchiveTheErrorSaysWhatIsMissing(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"another system": {map[string]string{"os-release": "ID=fedora\n"}, `"fedora"`},
		"no system":      {nil, "not a Debian machine"},
		"no sources":     {map[string]string{"os-release": bookworm}, "sources.list"},
		"others only":    {map[string]string{"os-release": bookworm, "apt/sources.list": "deb http://other.example nodistro main\n"}, "bookworm"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := archive(etc(t, test.files)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func FuzzSources(f *testing.F) {
	f.Add("deb [signed-by=/k] http://mirror.example sid main\n")
	f.Add("Types: deb\nURIs: http://mirror.example\nSuites: sid\nComponents: main\nSigned-By:\n key\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range append(parseLines(text), parseParagraphs(text)...) {
			if s.uri == "" || s.suite == "" || len(strings.Fields(s.uri+" "+s.suite)) != 2 {
				t.Errorf("not a source: %+v", s)
			}
		}
	})
}

func TestDepends(t *testing.T) {
	got := parseDepends("linux-image-5.10.0-9-cloud-amd64 (= 5.10.70-1), kmod | module-init-tools (>= 3), perl:any\n")
	if want := []string{"linux-image-5.10.0-9-cloud-amd64", "kmod", "perl"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := parseDepends("\n"); len(got) != 0 {
		t.Errorf("a package without dependencies depends on %q", got)
	}
}
