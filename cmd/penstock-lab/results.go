package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/experiment/published"
)

func newResultsCommand() *cobra.Command {
	var dir, document, images, quoting string
	var check bool
	cmd := &cobra.Command{
		Use:   "results",
		Short: "Write docs/results.md and its charts from the published figures in results/",
		Long: `Write docs/results.md and docs/img/NAME.svg from the files in results/, each of which has
the figures of one benchmark with set-up, command and commit. With --check the command
writes nothing, and fails if a document differs or README.md quotes a marked figure wrongly.

penstock-lab results import adds figures from a benchmark's --json output to results/.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := published.Load(dir)
			if err != nil {
				return err
			}
			charts, err := published.Charts(all)
			if err != nil {
				return err
			}
			files := map[string][]byte{document: []byte(published.Markdown(all))}
			for name, svg := range charts {
				files[filepath.Join(images, name+".svg")] = svg
			}
			readme, err := os.ReadFile(quoting)
			if err != nil {
				return err
			}
			if wrong := published.Check(string(readme), all); len(wrong) > 0 {
				err = fmt.Errorf("%s quotes figures wrongly:\n  %s", quoting, strings.Join(wrong, "\n  "))
			}
			for _, file := range slices.Sorted(maps.Keys(files)) {
				if !check {
					err = errors.Join(err, os.WriteFile(file, files[file], 0o644))
				} else if committed, readErr := os.ReadFile(file); readErr != nil || !bytes.Equal(committed, files[file]) {
					err = errors.Join(err, fmt.Errorf("%s differs from %s: run penstock-lab results", file, dir))
				}
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "results", "`FOLDER` of the published figures")
	flags.StringVar(&document, "out", "docs/results.md", "`FILE` to write")
	flags.StringVar(&images, "images", "docs/img", "`FOLDER` of the charts to write")
	flags.StringVar(&quoting, "readme", "README.md", "`FILE` whose marked figures are compared")
	flags.BoolVar(&check, "check", false, "compare only")
	cmd.AddCommand(newResultsImport())
	return cmd
}

func newResultsImport() *cobra.Command {
	var into string
	var choices published.Choices
	cmd := &cobra.Command{
		Use:   "import BENCH.json --into results/NAME.json",
		Short: "Publish the claims in a benchmark's --json output",
		Long: `Copy the claims in a benchmark's --json output into a file of results/. The command
replaces published figures of the same names, keeps the set-up, the text and all other
figures, and prints what it did with each figure. The commit is the commit of the measured
build, as the benchmark notes it. Afterwards, run make results to write docs/results.md.`,
		Example: "  penstock-lab bench isolation --phases alone,floor,native,sfqd2 --runs 5 --json isolation.json\n" +
			"  penstock-lab results import isolation.json --into results/isolation.json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if into == "" {
				return cli.Usage(errors.New("--into: name the file in results/ to change"))
			}
			measured, err := published.ReadMeasurement(args[0])
			if err != nil {
				return err
			}
			result, err := published.Read(into)
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("%w: for a new result, first write its title, set-up and command there, as in the files beside it", err)
			}
			if err != nil {
				return err
			}
			if choices.Commit == "" {
				if choices.Commit, err = measured.Commit(); err != nil {
					return fmt.Errorf("%s: %w", args[0], err)
				}
			}
			if choices.Date == "" {
				about, err := os.Stat(args[0])
				if err != nil {
					return err
				}
				choices.Date = about.ModTime().UTC().Format("2006-01-02")
			}
			done, err := result.Import(measured, choices)
			if err != nil {
				return fmt.Errorf("%s into %s: %w", args[0], into, err)
			}
			for _, line := range done {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			return result.Write(into)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&into, "into", "", "`FILE` in results/ to change")
	flags.StringVar(&choices.Commit, "commit", "", "`HASH` of the measured build, if the benchmark does not note it")
	flags.StringVar(&choices.Date, "date", "", "`DAY` of the measurement, 2006-01-02 (default: that of the JSON file)")
	flags.StringArrayVar(&choices.Add, "add", nil, "publish also the claim with this `NAME`; may be repeated")
	flags.BoolVar(&choices.MarkEarlier, "mark-earlier", false, "mark each figure that is missing from the benchmark's JSON as a figure of an earlier build")
	return cmd
}
