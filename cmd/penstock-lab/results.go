package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"penstock/lab/experiment/published"
)

func newResultsCommand() *cobra.Command {
	var dir, document, quoting string
	var check bool
	cmd := &cobra.Command{
		Use:   "results",
		Short: "Write docs/results.md from the published figures in results/",
		Long: `Write docs/results.md from the files in results/, each of which has the figures of one
benchmark with set-up, command and commit. With --check nothing is written: it fails if the
document differs, or if README.md quotes a marked figure wrongly.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := published.Load(dir)
			if err != nil {
				return err
			}
			text := []byte(published.Markdown(all))
			readme, err := os.ReadFile(quoting)
			if err != nil {
				return err
			}
			if wrong := published.Check(string(readme), all); len(wrong) > 0 {
				err = fmt.Errorf("%s quotes figures wrongly:\n  %s", quoting, strings.Join(wrong, "\n  "))
			}
			if !check {
				return errors.Join(err, os.WriteFile(document, text, 0o644))
			}
			if committed, readErr := os.ReadFile(document); readErr != nil || !bytes.Equal(committed, text) {
				err = errors.Join(err, fmt.Errorf("%s differs from %s: run penstock-lab results", document, dir))
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "results", "`FOLDER` of the published figures")
	flags.StringVar(&document, "out", "docs/results.md", "`FILE` to write")
	flags.StringVar(&quoting, "readme", "README.md", "`FILE` whose marked figures are compared")
	flags.BoolVar(&check, "check", false, "compare only")
	return cmd
}
