package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// strict makes wrong arguments a usage error everywhere. By itself cobra prints the help and
// succeeds if a subcommand is misspelt, so a script would continue.
func strict(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		strict(c)
	}
	if cmd.HasSubCommands() {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			cmd.SuggestionsMinimumDistance = 2 // wrong letters
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return Usage(fmt.Errorf("%q is not a command of %s: did you mean %s?", args[0], cmd.CommandPath(), strings.Join(near, " or ")))
			}
			return Usage(fmt.Errorf("%q is not a command of %s: %s --help lists the commands", args[0], cmd.CommandPath(), cmd.CommandPath()))
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
		case strings.HasPrefix(err.Error(), "unknown command"): // cobra.NoArgs says so
			return Usage(fmt.Errorf("%s takes no arguments, but got %q", cmd.CommandPath(), args))
		}
		return Usage(fmt.Errorf("%s: %w", cmd.CommandPath(), err))
	}
}

// wrongFlag adds a suggestion to the error of a misspelt flag.
func wrongFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return UsageError{err}
	}
	const lettersWrong = 3
	name, best, distance := unknown.GetSpecifiedName(), "", lettersWrong
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if d := levenshtein.ComputeDistance(name, f.Name); d < distance || len(name) >= lettersWrong && d > 0 && distance == lettersWrong && strings.HasPrefix(f.Name, name) {
			best, distance = f.Name, min(d, distance)
		}
	})
	if best == "" {
		return Usage(fmt.Errorf("%s has no flag --%s: %s --help lists the flags", cmd.CommandPath(), name, cmd.CommandPath()))
	}
	return Usage(fmt.Errorf("%s has no flag --%s: did you mean --%s?", cmd.CommandPath(), name, best))
}

// Group adds commands under a heading of the program's help.
func Group(root *cobra.Command, title string, commands ...*cobra.Command) {
	id := strings.ToLower(title)
	root.AddGroup(&cobra.Group{ID: id, Title: title + ":"})
	for _, c := range commands {
		c.GroupID = id
	}
	root.AddCommand(commands...)
}
