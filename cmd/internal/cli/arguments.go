package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// strict makes wrong arguments a usage error everywhere. By itself cobra prints the help
// and succeeds where a subcommand is misspelt, so that a script goes on.
func strict(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		strict(c)
	}
	name := strings.TrimPrefix(cmd.CommandPath(), "penstock ")
	if cmd.HasSubCommands() {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			cmd.SuggestionsMinimumDistance = 2 // letters that may be wrong
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return Usage(fmt.Errorf("no command %q below %s; there is %s", args[0], cmd.CommandPath(), strings.Join(near, ", ")))
			}
			return Usage(fmt.Errorf("no command %q below %s (--help lists them)", args[0], cmd.CommandPath()))
		}
		if !cmd.Runnable() {
			cmd.DisableFlagsInUseLine = true
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		return
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		var usage UsageError
		switch {
		case err == nil || errors.As(err, &usage):
			return err
		case strings.HasPrefix(err.Error(), "unknown command"): // as cobra.NoArgs has it
			return Usage(fmt.Errorf("%s takes no arguments, and was given %q", name, args))
		}
		return Usage(fmt.Errorf("%s: %w", name, err))
	}
}
