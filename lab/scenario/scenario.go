// Package scenario plays scripts that print what a rule decides, for tests.
//
// A scenario is a text file that is read from top to bottom: comments, commands,
// and indented under each command what it printed. The test plays the commands
// and compares; -update writes what they print now into the file, and a reviewer
// reads the difference.
package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the expected output of the scenarios in testdata")

// Stage carries out one command, of at least one word, and returns what it
// prints, without the indentation.
type Stage func(words []string) string

// Test plays every testdata/*.txt of the package under test, each on a stage of
// its own.
func Test(t *testing.T, begin func(t *testing.T) Stage) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios found: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(begin(t), string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("%s no longer tells what happens; now it is:\n%s", file, got)
			}
		})
	}
}

const indent = "    "

// play returns a scenario with the output that its commands have now.
func play(do Stage, text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, indent) {
			continue // earlier output
		}
		out.WriteString(line + "\n")
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		for printed := range strings.Lines(do(words)) {
			out.WriteString(indent + strings.TrimRight(printed, "\n") + "\n")
		}
	}
	return out.String()
}

// Number reads a word of a command.
func Number(t *testing.T, word string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(word, 64)
	if err != nil {
		t.Fatalf("%q is not a number", word)
	}
	return n
}

// Duration reads a word of a command.
func Duration(t *testing.T, word string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(word)
	if err != nil {
		t.Fatalf("%q is not a duration", word)
	}
	return d
}

// Value is what follows "key=" in one of the words, "" if no word begins so.
func Value(words []string, key string) string {
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v
		}
	}
	return ""
}
