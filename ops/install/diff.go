package install

import (
	"fmt"
	"strings"
)

// contextLines is how many equal lines are shown around a change.
const contextLines = 3

// unified is a file's change as patch(1) reads it.
func unified(path string, from, to file) string {
	name := func(prefix string, f file) string {
		if !f.exists {
			return "/dev/null"
		}
		return prefix + path
	}
	return Diff(name("a", from), name("b", to), from.text, to.text)
}

// Diff is what makes one text of another, as patch(1) reads it, under two names. Without a
// difference it is the names only.
func Diff(fromName, toName string, from, to []byte) string {
	ops := script(lines(from), lines(to))
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", fromName, toName)
	for i := 0; i < len(ops); {
		if ops[i].kind == ' ' {
			i++
			continue
		}
		start, end, equal := max(0, i-contextLines), i, 0
		for end < len(ops) && equal <= 2*contextLines {
			if ops[end].kind == ' ' {
				equal++
			} else {
				equal = 0
			}
			end++
		}
		end -= max(0, equal-contextLines)
		hunk(&out, ops[start:end])
		i = end
	}
	return out.String()
}

// op is one line of a difference: ' ' in both, '-' in the first, '+' in the second.
type op struct {
	kind byte
	line string
	a, b int // lines before it
}

func hunk(out *strings.Builder, ops []op) {
	var before, after int
	for _, o := range ops {
		if o.kind != '+' {
			before++
		}
		if o.kind != '-' {
			after++
		}
	}
	at := func(lines, count int) int {
		if count == 0 {
			return lines
		}
		return lines + 1
	}
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", at(ops[0].a, before), before, at(ops[0].b, after), after)
	for _, o := range ops {
		fmt.Fprintf(out, "%c%s", o.kind, o.line)
		if !strings.HasSuffix(o.line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

func lines(text []byte) []string {
	var all []string
	for l := range strings.Lines(string(text)) {
		all = append(all, l)
	}
	return all
}

// script is what turns a into b. What is equal at both ends is cut off first, which
// leaves little: files are changed in a few places. The rest is matched by the
// longest common subsequence, up to a size at which it is shown as replaced.
func script(a, b []string) []op {
	const cellsMax = 4 << 20
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var ops []op
	i, j := 0, 0
	put := func(kind byte) {
		o := op{kind: kind, a: i, b: j}
		if kind == '+' {
			o.line = b[j]
		} else {
			o.line = a[i]
		}
		if kind != '+' {
			i++
		}
		if kind != '-' {
			j++
		}
		ops = append(ops, o)
	}
	for range head {
		put(' ')
	}
	n, m := len(a)-tail, len(b)-tail
	if (n-head+1)*(m-head+1) <= cellsMax {
		longest := make([][]int32, n-head+1)
		for x := range longest {
			longest[x] = make([]int32, m-head+1)
		}
		for x := n - head - 1; x >= 0; x-- {
			for y := m - head - 1; y >= 0; y-- {
				if a[head+x] == b[head+y] {
					longest[x][y] = longest[x+1][y+1] + 1
				} else {
					longest[x][y] = max(longest[x+1][y], longest[x][y+1])
				}
			}
		}
		for i < n && j < m {
			switch {
			case a[i] == b[j]:
				put(' ')
			case longest[i-head+1][j-head] >= longest[i-head][j-head+1]:
				put('-')
			default:
				put('+')
			}
		}
	}
	for i < n {
		put('-')
	}
	for j < m {
		put('+')
	}
	for range tail {
		put(' ')
	}
	return ops
}
