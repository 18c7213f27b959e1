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
				return "", errors.New("gone for a moment")
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
		if errs.String() != "gone for a moment\n" || out.String() != "figures\nfigures\n" {
			t.Errorf("%q, %q", errs.String(), out.String())
		}
		none := func(context.Context) (string, error) { return "", errors.New("nobody") }
		if err := Stream(context.Background(), none, time.Minute, false, io.Discard, io.Discard, write); err == nil {
			t.Error("no error without a first answer")
		}
	})
}

// seen is a terminal's output that ends the view once the other screen is there.
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

// The terminal is put back when the context ends.
func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	out := &seen{end: cancel}
	source := func(context.Context) (string, error) { return "figures", nil }
	view := View[string]{Columns: []string{"name"}, Source: source, Draw: func(doc string, _ Selection, _ int) Page { return Page{Headline: doc} }}
	err := Run(ctx, NewModel(ctx, view, time.Second, Selection{Sort: "name"}),
		tea.WithInput(nil), tea.WithOutput(out), tea.WithWindowSize(80, 24))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if !strings.Contains(out.String(), "\x1b[?1049l") {
		t.Errorf("the other screen is not left: %q", out.String())
	}
}
