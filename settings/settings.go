package settings

import (
	"fmt"
	"io"
	"os"
	"syscall"

	"penstock/settings/plain"
)

// Load reads a file with one YAML document into a struct, as ParseDocument does. The parameter most
// is the largest permitted size of the file in bytes. Load returns an error with the file's name if
// the file cannot be read or is not YAML.
func Load(file string, most int64, into any) (*Document, error) {
	text, err := Read(file, most)
	if err != nil {
		return nil, err
	}
	d, err := ParseDocument(text, "the file", into)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return d, nil
}

// Read reads a file. The parameter most is the largest permitted size of the file in bytes. Errors
// contain the file's name.
func Read(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, plain.File(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, plain.File(err)
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s: over %d bytes", file, most)
	}
	return text, nil
}

// Parse reads one YAML document. An error contains all mistakes with line and column, as
// Mistakes.
func Parse(text []byte, into any) error {
	d, err := ParseDocument(text, "the file", into)
	if err != nil {
		return err
	}
	return d.Err()
}

// Fingerprint returns a text that changes when a file is changed, renamed, created or deleted. It
// uses stat, which works on every file system.
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
