package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"penstock/node/status"
)

// Stream writes a document each interval, as text or as one line of JSON, until
// ctx ends; once: a single one. Without a first answer it fails; when the daemon
// goes away later it says so on errors and goes on.
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
			fmt.Fprintln(errors, err)
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

// WriteJSON writes a document as one line.
func WriteJSON(w io.Writer, doc *status.Document) error { return json.NewEncoder(w).Encode(doc) }

// WriteText gives a writer of documents as text, an empty line after each.
func WriteText(address string, s Selection) func(io.Writer, *status.Document) error {
	return func(w io.Writer, doc *status.Document) error {
		_, err := fmt.Fprintln(w, Text(doc, address, s))
		return err
	}
}
