package screen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
)

func TestTable(t *testing.T) {
	table := NewTable("NAME|>SIZE|>LIMIT|NOTE")
	table.Add("a", "5", "", "x\x1b")
	table.Add("ä long one", "1234567", "1")
	want := []string{
		"NAME           SIZE  LIMIT  NOTE",
		"a                 5      -  x?",
		"ä long one  1234567      1",
	}
	if got := table.Lines(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPrintableLines(t *testing.T) {
	if got, want := PrintableLines("a \x1b[2J\r\n\tb\x07\n"), "a ?[2J?\n\tb?\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		write := func(w io.Writer, doc string) error {
			_, err := fmt.Fprintln(w, doc)
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		var out, errs bytes.Buffer
		asked := 0
		source := func(context.Context) (string, error) {
			switch asked++; asked {
			case 2:
				return "", errors.New("gone \x1b[2J for a moment\nor two")
			case 4:
				cancel()
			}
			return "figures", nil
		}
		begin := time.Now()
		err := Stream(ctx, source, time.Minute, false, &out, &errs, write)
		if !errors.Is(err, context.Canceled) || time.Since(begin) != 3*time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if errs.String() != "gone ?[2J for a moment?or two\n" || out.String() != "figures\nfigures\n" {
			t.Errorf("%q, %q", errs.String(), out.String())
		}
		none := func(context.Context) (string, error) { return "", errors.New("nobody") }
		if err := Stream(context.Background(), none, time.Minute, false, io.Discard, io.Discard, write); err == nil {
			t.Error("no error without a first answer")
		}
	})
}

// A paused view shows "paused" even with an error, because it does not notice the end of the error.
func TestPausedIsTold(t *testing.T) {
	view := View[string]{Columns: []string{"name"}, Draw: func(doc string, _ Selection, _, _ int) Page { return Page{Headline: doc, Rows: []string{"row"}} }}
	var m tea.Model = NewModel(context.Background(), view, time.Second, Selection{Sort: "name"})
	shows := func(when string, want bool, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if got := strings.Join(m.(Model[string]).lines(), "\n"); strings.Contains(got, text) != want {
				t.Errorf("%s, %q: %v in\n%s", when, text, !want, got)
			}
		}
	}
	send := func(messages ...tea.Msg) {
		for _, msg := range messages {
			m, _ = m.Update(msg)
		}
	}
	const paused = "paused: p goes on"
	p, failed := tea.KeyPressMsg{Code: 'p', Text: "p"}, Answer[string]{Err: errors.New("nobody answers")}
	send(tea.WindowSizeMsg{Width: 100, Height: 24}, failed)
	shows("failed at first", false, paused)
	send(p)
	shows("failed at first and paused", true, paused, "nobody answers")
	send(p, Answer[string]{Doc: "figures"}, p)
	shows("paused", true, paused, "figures")
	shows("paused", false, "nobody answers")
	send(p, failed)
	shows("failed", false, paused)
	send(p, Answer[string]{Doc: "newer"})
	shows("failed and paused", true, paused, "figures of", "nobody answers")
	shows("failed and paused", false, "newer")
	send(p, Answer[string]{Doc: "newer"})
	shows("goes on", false, paused, "nobody answers")
	shows("goes on", true, "newer")
}

// seen is a terminal's output that ends the view once the alternate screen is shown.
type seen struct {
	bytes.Buffer
	end func()
}

func (s *seen) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Contains(s.String(), "\x1b[?1049h") {
		s.end()
	}
	return n, err
}

// The terminal is restored when the context ends.
func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	out := &seen{end: cancel}
	source := func(context.Context) (string, error) { return "figures", nil }
	view := View[string]{Columns: []string{"name"}, Source: source, Draw: func(doc string, _ Selection, _, _ int) Page { return Page{Headline: doc} }}
	err := Run(ctx, NewModel(ctx, view, time.Second, Selection{Sort: "name"}),
		tea.WithInput(nil), tea.WithOutput(out), tea.WithWindowSize(80, 24))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if !strings.Contains(out.String(), "\x1b[?1049l") {
		t.Errorf("the other screen is not left: %q", out.String())
	}
}
