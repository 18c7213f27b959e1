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
			return unknownCommand(cmd, args[0])
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
		case strings.HasPrefix(err.Error(), "unknown command"): // the error of cobra.NoArgs
			return Usage(fmt.Errorf("%s takes no arguments, but got %q", cmd.CommandPath(), args))
		}
		return Usage(fmt.Errorf("%s: %w", cmd.CommandPath(), err))
	}
}

func unknownCommand(parent *cobra.Command, name string) error {
	parent.SuggestionsMinimumDistance = 2 // the maximum number of wrong letters
	if near := parent.SuggestionsFor(name); len(near) > 0 {
		return Usage(fmt.Errorf("%q is not a command of %s: did you mean %s?", name, parent.CommandPath(), strings.Join(near, " or ")))
	}
	return Usage(fmt.Errorf("%q is not a command of %s: %s --help lists the commands", name, parent.CommandPath(), parent.CommandPath()))
}

// newHelp returns cobra's help command, but a misspelt command is an error.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]...",
		Short: "Print the help of a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return unknownCommand(root, args[0])
			}
			if len(rest) > 0 && cmd.HasSubCommands() {
				return unknownCommand(cmd, rest[0])
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			parent, _, err := root.Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, c := range parent.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// wrongFlag returns a usage error for a flag: with a suggestion if the flag is misspelt, with the
// accepted values if its value is wrong.
func wrongFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var needsValue *pflag.ValueRequiredError
	var wrongValue *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	case errors.As(err, &needsValue):
		name, usage := pflag.UnquoteUsage(needsValue.GetFlag())
		return Usage(fmt.Errorf("%s: --%s needs a value, %s: %s", cmd.CommandPath(), needsValue.GetFlag().Name, strings.ToUpper(name), usage))
	case errors.As(err, &wrongValue):
		flag := wrongValue.GetFlag()
		if takes := valuesOf[flag.Value.Type()]; takes != "" {
			return Usage(fmt.Errorf("--%s %q: give %s", flag.Name, wrongValue.GetValue(), takes))
		}
		return Usage(fmt.Errorf("--%s %q: %w", flag.Name, wrongValue.GetValue(), wrongValue.Unwrap()))
	}
	return UsageError{err}
}

// valuesOf describes the values that flags accept, by pflag's names of their types.
var valuesOf = map[string]string{
	"bool": "true or false", "duration": "a duration with a unit, such as 20ms, 5s or 1m30s",
	"int": "a whole number", "int64": "a whole number", "float64": "a number",
	"uint": "a whole number of 0 or more", "uint32": "a whole number of 0 or more", "uint64": "a whole number of 0 or more",
}

// unknownFlag adds a suggestion to the error of a misspelt flag.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	const lettersWrong = 3
	name, best, distance := unknown.GetSpecifiedName(), "", lettersWrong
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		if strings.ContainsAny(short[:1], "0123456789.") {
			return Usage(fmt.Errorf("-%s: %s takes no negative number", short, cmd.CommandPath()))
		}
		return Usage(fmt.Errorf("%s has no flag -%s: %s --help lists the flags", cmd.CommandPath(), name, cmd.CommandPath()))
	}
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
