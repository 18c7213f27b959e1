package blockio

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"penstock/node/mounts"
)

const (
	maxCgroups = 8192             // maximum number of known paths
	walkPeriod = 10 * time.Second // the least time between two walks of the hierarchy
)

// cgroups finds the paths of cgroups by their ids, which are the inodes of their directories. The
// hierarchy is walked when an unknown id appears, since cgroups come and go all the time. A walk
// needs no right, unlike a lookup by file handle.
type cgroups struct {
	root   string // empty: no hierarchy
	paths  map[uint64]string
	walked time.Time
}

// path returns a cgroup's path, empty if it is not known.
func (c *cgroups) path(id uint64, now time.Time) string {
	if id == 0 || c.root == "" {
		return ""
	}
	path, known := c.paths[id]
	if !known && (c.walked.IsZero() || now.Sub(c.walked) >= walkPeriod) {
		c.walk()
		c.walked = now
		path = c.paths[id]
	}
	return path
}

// walk records all existing cgroups. The path of a removed cgroup is kept, since I/O of that cgroup
// may follow later, until too many paths are known.
func (c *cgroups) walk() {
	if c.paths == nil || len(c.paths) >= maxCgroups {
		c.paths = map[uint64]string{}
	}
	_ = filepath.WalkDir(c.root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case len(c.paths) >= maxCgroups:
			return fs.SkipAll
		case err != nil || !d.IsDir():
			return nil // gone meanwhile
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			c.paths[st.Ino] = "/" + strings.TrimPrefix(strings.TrimPrefix(path, c.root), "/")
		}
		return nil
	})
}

// findHierarchy returns the mount point of the hierarchy whose cgroups the block layer uses:
// blkio of cgroup v1, or otherwise v2. Empty if there is none.
func findHierarchy(mountinfo string) string {
	text, err := os.ReadFile(mountinfo)
	if err != nil {
		return ""
	}
	return parseHierarchy(string(text))
}

// parseHierarchy reads the text of a mountinfo file.
func parseHierarchy(text string) (place string) {
	for m := range mounts.Parse(text) {
		switch {
		case m.Kind == "cgroup" && strings.Contains(","+m.Options+",", ",blkio,"):
			return m.Point
		case m.Kind == "cgroup2" && place == "":
			place = m.Point
		}
	}
	return place
}
