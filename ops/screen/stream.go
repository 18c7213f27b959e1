package screen

import (
	"context"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Stream writes a document at each interval, as text or as one line of JSON, until ctx ends; with
// once, it writes a single document. It fails if there is no first answer. If a later query fails,
// it writes the error to errors and continues.
func Stream[D any](ctx context.Context, source func(context.Context) (D, error), interval time.Duration, once bool, out, errors io.Writer, write func(io.Writer, D) error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for first := true; ; first = false {
		doc, err := source(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			err = write(out, doc)
			if err != nil {
				return err
			}
		} else if first {
			return err
		} else {
			fmt.Fprintln(errors, Printable(err.Error()))
		}
		if once {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Run shows the view on the terminal until the reader quits or ctx ends; in the second case it
// returns ctx's error. The terminal is restored in both cases.
func Run(ctx context.Context, m tea.Model, options ...tea.ProgramOption) error {
	options = append(options, tea.WithContext(ctx), tea.WithoutSignalHandler())
	_, err := tea.NewProgram(m, options...).Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
