// Package scenario plays scripts for tests that print the decisions of a rule.
//
// A scenario is a text file that is played from top to bottom. It consists of comments, commands
// and, indented below each command, the command's output. The test plays the commands and compares
// the output. With -update, it writes the current output into the file, and a reviewer reads the
// difference.
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

// Stage performs one command of at least one word, and returns the command's output without the
// indentation.
type Stage func(words []string) string

// Test plays every testdata/*.txt file of the package under test, each on its own stage.
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
				t.Errorf("%s differs from the actual output (run with -update to replace it):\n%s", file, got)
			}
		})
	}
}

const indent = "    "

// play returns the scenario's text with the current output of its commands.
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

// Number parses a word of a command as a number.
func Number(t *testing.T, word string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(word, 64)
	if err != nil {
		t.Fatalf("%q is not a number", word)
	}
	return n
}

// Duration parses a word of a command as a duration.
func Duration(t *testing.T, word string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(word)
	if err != nil {
		t.Fatalf("%q is not a duration", word)
	}
	return d
}

// Value returns the text after "key=" in the first word that begins with "key=", or "" if no word
// does.
func Value(words []string, key string) string {
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v
		}
	}
	return ""
}
