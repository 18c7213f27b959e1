package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"penstock/lab/profileplot"
	"penstock/ops/measure"
	"penstock/settings/plain"
)

func newPlotCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "plot PROFILE.json",
		Short: "Draw a disk's throughput and latency from `penstock profile --json`",
		Example: "  penstock profile /data/1 --json > disk.json\n" +
			"  penstock-lab plot disk.json --out disk.svg",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return plain.File(err)
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
	cmd.Flags().StringVarP(&file, "out", "o", "", "SVG `FILE` (default: beside the input)")
	return cmd
}
