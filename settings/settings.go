package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// Load reads a file of one YAML document, of at most so many bytes, into a struct. Errors
// name the file, and the line of what is wrong in it.
func Load(file string, most int64, into any) error {
	text, err := Read(file, most)
	if err != nil {
		return err
	}
	if err := Parse(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// Read reads a file of at most so many bytes.
func Read(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s: over %d bytes", file, most)
	}
	return text, nil
}

// Parse reads one YAML document. Errors name the line.
func Parse(text []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return plainly(err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("more than one document: keep one")
	}
	return nil
}

// unknownField is how the library tells of a key, with a type of ours that no reader knows.
var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// plainly says a mistake in the words of the file.
func plainly(err error) error {
	var mistakes *yaml.TypeError
	if !errors.As(err, &mistakes) {
		return err
	}
	var lines []string
	for _, m := range mistakes.Errors {
		lines = append(lines, unknownField.ReplaceAllString(m, `field $1 is not known here`))
	}
	return errors.New(strings.Join(lines, "\n  "))
}

// Fingerprint changes when a file does, also by a rename or when it comes or goes. It is
// what stat says, which works on every file system.
func Fingerprint(file string) string {
	if file == "" {
		return ""
	}
	st, err := os.Stat(file)
	if err != nil {
		return err.Error()
	}
	inode := uint64(0)
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		inode = s.Ino
	}
	return fmt.Sprint(st.ModTime().UnixNano(), st.Size(), inode)
}
