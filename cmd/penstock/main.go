// Command penstock gives every application on a shared data cluster its due
// part of the disks. This file only assembles the subcommands; each of them is
// flags and wiring in a file of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"penstock/screen"
)

// version is set by the build (-ldflags "-X main.version=...").
var version = "dev"

// usageError marks an error that the caller made on the command line, so that
// main can end with exit code 2 instead of 1.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "penstock",
		Short:         "Per-application I/O control for shared big-data clusters",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	// One line a subcommand.
	root.AddCommand(newNodeCommand(), newBrokerCommand(), newCertsCommand(), newPolicyCommand(), newAppCommand(), newTopCommand(), newDoctorCommand(), newReference())
	root.AddCommand(newProfileCommand(), newInstallCommand())
	root.AddCommand(newTestbedCommand())
	root.AddCommand(newBenchCommand(), newSimCommand(), newDemoCommand())
	strict(root)
	return root
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if err == context.Canceled { // bare, it says nothing to who reads it
		err = fmt.Errorf("interrupted (%w)", err)
	}
	fmt.Fprintln(os.Stderr, "penstock:", screen.PrintableLines(err.Error())) // some of it may be another process's
	var usage usageError
	if errors.As(err, &usage) {
		os.Exit(2)
	}
	if errors.Is(err, context.Canceled) {
		os.Exit(130) // as a shell reports a program that Ctrl-C ended
	}
	os.Exit(1)
}
