package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// result is what a benchmark found.
type result interface {
	WriteTable(w io.Writer) error
	WriteJSON(w io.Writer) error
}

// writeResult prints the table, and the JSON to a file; "-" prints the JSON alone.
func writeResult(cmd *cobra.Command, file string, res result) error {
	switch file {
	case "-":
		return res.WriteJSON(cmd.OutOrStdout())
	case "":
		return res.WriteTable(cmd.OutOrStdout())
	}
	f, err := os.Create(file + ".new")
	if err != nil {
		return err
	}
	if err := errors.Join(res.WriteJSON(f), f.Close()); err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", file, err)
	}
	return errors.Join(os.Rename(f.Name(), file), res.WriteTable(cmd.OutOrStdout()))
}
