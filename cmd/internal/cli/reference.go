package cli

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newReference returns the command that writes the --help text of every command as Markdown. It is
// hidden: `make reference` calls it, and a test compares the committed files with its output.
func newReference(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "reference DIR",
		Short:  "Write the reference of the command line to DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return WriteReference(root, args[0]) },
	}
}

// WriteReference writes a file for each of the program's commands to dir, and removes the program's
// other files there.
func WriteReference(root *cobra.Command, dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, root.Name()+"_*.md"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true // the tag contains the date
	root.InitDefaultCompletionCmd()
	return doc.GenMarkdownTree(root, dir)
}

// StaleReference returns the names of the pages in dir that differ from the --help texts of the
// program's commands. It writes the expected pages to scratch.
func StaleReference(root *cobra.Command, dir, scratch string) ([]string, error) {
	if err := WriteReference(root, scratch); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, d := range []string{dir, scratch} {
		for _, pattern := range []string{root.Name() + ".md", root.Name() + "_*.md"} {
			files, err := filepath.Glob(filepath.Join(d, pattern))
			if err != nil {
				return nil, err
			}
			for _, f := range files {
				names[filepath.Base(f)] = true
			}
		}
	}
	var stale []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		want, _ := os.ReadFile(filepath.Join(scratch, name))
		got, _ := os.ReadFile(filepath.Join(dir, name))
		if !bytes.Equal(got, want) {
			stale = append(stale, name)
		}
	}
	return stale, nil
}
