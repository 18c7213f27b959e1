package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"penstock/lab/profileplot"
	"penstock/lab/usageplot"
	"penstock/ops/characterise"
	"penstock/ops/measure"
	"penstock/settings/plain"
)

func newPlotCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "plot FILE...",
		Short: "Draw a disk from `penstock profile --json`, or applications from `penstock app profile --out`",
		Example: "  penstock profile /data/1 --json > disk.json\n" +
			"  penstock-lab plot disk.json --out disk.svg\n" +
			"  penstock-lab plot sort.json kmeans.json --out table2.html",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return plain.File(err)
			}
			if len(args) > 1 || bytes.HasPrefix(text, []byte(characterise.Prefix)) {
				return plotApplications(cmd, args, file)
			}
			var r measure.Result
			if err := json.Unmarshal(text, &r); err != nil {
				return fmt.Errorf("%s is not the output of penstock profile --json (%w)", args[0], err)
			}
			if r.Profile == nil || len(r.Points) == 0 {
				return fmt.Errorf("%s has no measured points: write it with penstock profile DIR --json", args[0])
			}
			svg, err := profileplot.Plot(&r)
			if err != nil {
				return err
			}
			if file == "" {
				file = strings.TrimSuffix(args[0], ".json") + ".svg"
			}
			if err := os.WriteFile(file, svg, 0o644); err != nil {
				return plain.File(err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), file)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "out", "o", "", "`FILE` to write: SVG for a disk, HTML for applications (default: beside the first input)")
	return cmd
}

// plotApplications draws the files of `penstock app profile` as one page.
func plotApplications(cmd *cobra.Command, names []string, out string) error {
	var files []*characterise.File
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return plain.File(err)
		}
		f, err := characterise.Read(bytes.NewReader(text))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, f)
	}
	var page bytes.Buffer
	if err := usageplot.Write(&page, files); err != nil {
		return err
	}
	if out == "" {
		out = strings.TrimSuffix(names[0], ".json") + ".html"
	}
	if err := os.WriteFile(out, page.Bytes(), 0o644); err != nil {
		return plain.File(err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), out)
	return nil
}
