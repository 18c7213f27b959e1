// Package mounts reads the table of mounts, and makes system calls on file systems that may hang.
//
// Problem: a call on a disk that hangs, such as open(2) or stat(2), may never return, and nothing ends
// the thread that waits in it. Meanwhile the daemon must serve the other disks, even if it often needs
// the disk that hangs. Choice: such a call has a goroutine of its own, and its caller waits only for
// some time (Do). All calls on one device have common bounds: a few at a time, and none while an earlier
// one hangs. So a disk that hangs keeps a few threads, and delays each caller once at most. The device
// of a path comes from the kernel's table, which is read without a disk.
package mounts

import (
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Mount is an entry of the table.
type Mount struct {
	Device  string // major:minor of the file system
	Point   string // where it is mounted
	Kind    string // type of the file system
	Options string // of the file system
}

// Parse reads the text of a mountinfo file. A line consists of some fields, of which the third is the device and the
// fifth the mount point, a dash, the file system's type, its source, and its options. Other lines are left out.
func Parse(text string) iter.Seq[Mount] {
	return func(yield func(Mount) bool) {
		for line := range strings.Lines(text) {
			before, after, ok := strings.Cut(line, " - ")
			place, kind := strings.Fields(before), strings.Fields(after)
			if !ok || len(place) < 5 || len(kind) < 3 {
				continue
			}
			if !yield(Mount{Device: place[2], Point: unescape(place[4]), Kind: kind[0], Options: kind[2]}) {
				return
			}
		}
	}
}

// unescape replaces \040 and the like, by which the kernel writes white space and backslashes.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if c, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// table has the devices of the mount points.
type table map[string]string

func read(mountinfo string) table {
	text, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil
	}
	t := table{}
	for m := range Parse(string(text)) {
		t[m.Point] = m.Device // a later mount hides an earlier one
	}
	return t
}

// maxLinks is the maximum number of links that deviceOf follows.
const maxLinks = 16

// deviceOf returns the device of an absolute path's file system, "" if it is not known. It reads links only outside of
// the mounts in the table, that is in the root file system, which is at root.
func (t table) deviceOf(root, path string) string {
	path = filepath.Clean(path)
	for range maxLinks {
		point := t.pointOf(path)
		if point != "/" {
			return t[point]
		}
		next, linked := followOne(root, path)
		if !linked {
			break
		}
		path = next
	}
	return t["/"]
}

func (t table) pointOf(path string) string {
	for at := path; ; at = filepath.Dir(at) {
		if _, is := t[at]; is || at == filepath.Dir(at) {
			return at
		}
	}
}

// followOne replaces the first component of the path that is a link by its target.
func followOne(root, path string) (next string, linked bool) {
	for end := 1; end <= len(path); end++ {
		if end < len(path) && path[end] != '/' {
			continue
		}
		target, err := os.Readlink(root + path[:end])
		if err != nil {
			continue
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path[:end]), target)
		}
		return filepath.Join(target, path[end:]), true
	}
	return "", false
}
