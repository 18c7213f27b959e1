package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newReference writes what --help says, of every command, as Markdown. It is
// hidden: `make reference` calls it, and a test holds the files against it.
func newReference() *cobra.Command {
	return &cobra.Command{
		Use:    "reference DIR",
		Short:  "Write the reference of the command line to DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return writeReference(args[0]) },
	}
}

// writeReference makes DIR hold a file for each command, and no others.
func writeReference(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, "penstock*.md"))
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
	root := newRoot()
	root.DisableAutoGenTag = true // it has the date
	root.InitDefaultCompletionCmd()
	return doc.GenMarkdownTree(root, dir)
}
