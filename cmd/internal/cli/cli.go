// Package cli holds what the commands of penstock and penstock-lab share: exit codes, errors for
// wrong arguments, sizes, JSON output and the reference pages.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"penstock/ops/screen"
)

// Version is set by the build (-ldflags "-X penstock/cmd/internal/cli.Version=...").
var Version = "dev"

// UsageError marks an error in the command line. The program then exits with code 2
// instead of 1.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Root completes a program's root command.
func Root(root *cobra.Command) *cobra.Command {
	root.Version = Version
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(wrongFlag)
	help, version := newHelp(root), newVersion(root)
	root.SetHelpCommand(help)
	if len(root.Groups()) > 0 {
		Group(root, "Develop", version, newReference(root))
		root.SetHelpCommandGroupID("develop")
		root.SetCompletionCommandGroupID("develop")
	} else {
		root.AddCommand(version, newReference(root))
	}
	strict(root)
	return root
}

// Main runs the program and exits with 0 (done), 1 (failed), 2 (wrong arguments) or 130
// (interrupted).
func Main(root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := root.ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if err == context.Canceled { // the text "context canceled" does not say what happened
		err = fmt.Errorf("interrupted (%w)", err)
	}
	// Part of the message may come from another process.
	fmt.Fprintln(os.Stderr, root.Name()+":", screen.PrintableLines(err.Error()))
	var usage UsageError
	if errors.As(err, &usage) {
		os.Exit(2)
	}
	if errors.Is(err, context.Canceled) {
		os.Exit(130) // the code of shells for a program that Ctrl-C ended
	}
	os.Exit(1)
}

// PrintJSON writes a value, indented, to the command's standard output.
func PrintJSON(cmd *cobra.Command, value any) error {
	out := json.NewEncoder(cmd.OutOrStdout())
	out.SetIndent("", "  ")
	return out.Encode(value)
}

// ParseBytes reads a size such as 512, 64K, 1.5M or 3G, in powers of 1024.
func ParseBytes(text string) (int64, error) {
	const units, bytesMax = "KMGT", 1 << 50
	digits, unit := text, 1.0
	if n := len(text); n > 0 {
		if i := strings.IndexByte(units, text[n-1]); i >= 0 {
			digits, unit = text[:n-1], float64(int64(1)<<(10*(i+1)))
		}
	}
	number, err := strconv.ParseFloat(digits, 64)
	if bytes := number * unit; err == nil && bytes >= 0 && bytes <= bytesMax {
		return int64(bytes), nil
	}
	return 0, fmt.Errorf("%q is not a size: give a number, with K, M, G or T for powers of 1024, such as 12M", text)
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Usage marks err as an error in the command line.
func Usage(err error) error { return UsageError{err} }
