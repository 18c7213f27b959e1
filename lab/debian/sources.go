package debian

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is an archive of packages in apt's configuration.
type source struct {
	uri        string
	suite      string
	components []string
	// The value of each of these options, empty if it is not there. A value of several lines is a key.
	signedBy, trusted string
}

// with returns apt's configuration (deb822) for the archive with another suite besides its own.
func (s source) with(suite string) string {
	var b strings.Builder
	suites := s.suite
	if suite != s.suite {
		suites += " " + suite
	}
	fmt.Fprintf(&b, "Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nTargets: Packages\n", s.uri, suites)
	if s.signedBy != "" {
		fmt.Fprintf(&b, "Signed-By: %s\n", s.signedBy)
	}
	if s.trusted != "" {
		fmt.Fprintf(&b, "Trusted: %s\n", s.trusted)
	}
	return b.String()
}

// archive returns the archive from which the machine gets its own Debian, according to the files of apt below
// etc, the path of /etc.
func archive(etc string) (source, error) {
	text, err := os.ReadFile(filepath.Join(etc, "os-release"))
	if err != nil {
		return source{}, fmt.Errorf("this is not a Debian machine: %w", err)
	}
	system := parseRelease(string(text))
	if system["ID"] != "debian" {
		return source{}, fmt.Errorf("this is not a Debian machine: %s/os-release names it %q", etc, system["ID"])
	}
	all, err := configured(filepath.Join(etc, "apt"))
	if err != nil {
		return source{}, err
	}
	own := []string{system["VERSION_CODENAME"], "stable", "oldstable", "testing", "unstable", "sid"}
	for _, suite := range own {
		for _, s := range all {
			if suite != "" && s.suite == suite && slices.Contains(s.components, "main") {
				return s, nil
			}
		}
	}
	return source{}, fmt.Errorf("apt's configuration (%s/apt/sources.list and sources.list.d) has no archive of Debian %s with the component main: add one, as in sources.list(5)",
		etc, system["VERSION_CODENAME"])
}

// configured returns the sources in apt's folder, in apt's order of files.
func configured(dir string) ([]source, error) {
	var all []source
	parts, err := filepath.Glob(filepath.Join(dir, "sources.list.d", "*"))
	if err != nil {
		return nil, err
	}
	for _, file := range append([]string{filepath.Join(dir, "sources.list")}, parts...) {
		parse := parseLines
		switch filepath.Ext(file) {
		case ".sources":
			parse = parseParagraphs
		case ".list":
		default:
			continue // apt ignores it too
		}
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, parse(string(text))...)
	}
	return all, nil
}

// parseRelease returns the variables in the text of an os-release file.
func parseRelease(text string) map[string]string {
	variables := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			variables[name] = strings.Trim(value, `"'`)
		}
	}
	return variables
}

// parseLines returns the sources of binary packages in the text of a .list file (sources.list(5), one-line style). It ignores lines
// that it does not understand.
func parseLines(text string) (all []source) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
		if !ok || strings.TrimLeft(rest, " \t") == rest { // deb-src, for example
			continue
		}
		options := map[string]string{}
		if rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "[") {
			var inside string
			if inside, rest, ok = strings.Cut(rest[1:], "]"); !ok {
				continue
			}
			for _, option := range strings.Fields(inside) {
				name, value, _ := strings.Cut(option, "=")
				options[strings.ToLower(name)] = strings.Trim(value, `"`)
			}
		}
		words := strings.Fields(rest)
		if len(words) < 3 { // without components, the suite is a path
			continue
		}
		all = append(all, source{uri: words[0], suite: words[1], components: words[2:], signedBy: options["signed-by"], trusted: options["trusted"]})
	}
	return all
}

// parseParagraphs returns the sources of binary packages in the text of a .sources file (sources.list(5), deb822 style). It
// ignores paragraphs that it does not understand.
func parseParagraphs(text string) (all []source) {
	fields, last := map[string]string{}, ""
	end := func() {
		if slices.Contains(strings.Fields(fields["types"]), "deb") && !off(fields["enabled"]) {
			for _, uri := range strings.Fields(fields["uris"]) {
				for _, suite := range strings.Fields(fields["suites"]) {
					all = append(all, source{uri: uri, suite: suite, components: strings.Fields(fields["components"]),
						signedBy: fields["signed-by"], trusted: fields["trusted"]})
				}
			}
		}
		fields, last = map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "":
			end()
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				fields[last] += "\n" + line
			}
		default:
			name, value, ok := strings.Cut(line, ":")
			if last = ""; ok {
				last = strings.ToLower(name)
				fields[last] = strings.TrimSpace(value)
			}
		}
	}
	end()
	return all
}

// off reports whether the value of a deb822 field means no.
func off(value string) bool {
	return slices.Contains([]string{"no", "false", "without", "off", "disable", "0"}, strings.ToLower(value))
}
