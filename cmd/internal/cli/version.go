package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// build describes the running program.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// newVersion returns the command that prints the version of this build.
func newVersion(root *cobra.Command) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this build",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := build{Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if asJSON {
				return PrintJSON(cmd, b)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s (%s, %s)\n", root.Name(), b.Version, b.Go, b.Platform)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
