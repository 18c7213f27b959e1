package hadoop

import (
	"fmt"
	"os"
	"path/filepath"
)

// Redirect moves the intermediate data of a user's jobs to dirs, one folder for each of the
// cluster's LocalDirs. It makes missing folders. A NodeManager keeps a user's data in the folder
// usercache/USER of each local directory, and Redirect creates a symbolic link in place of that
// folder. It must be called before the user's first job.
func (c *Cluster) Redirect(user string, dirs []string) error {
	if len(dirs) != len(c.cfg.LocalDirs) || c.cfg.NodeManagers != 1 {
		return fmt.Errorf("hadoop: %d folders for %s's intermediate data: give one for each of the %d local directories, on a cluster with one NodeManager",
			len(dirs), user, len(c.cfg.LocalDirs))
	}
	for i, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.Symlink(dir, filepath.Join(c.cfg.LocalDirs[i], "nm0", "usercache", user)); err != nil {
			return fmt.Errorf("hadoop: redirect the intermediate data of %s: %w", user, err)
		}
	}
	return nil
}
