package config

import (
	"errors"
	"fmt"
	"path/filepath"

	"penstock/node/identity"
)

// Identity configures how the flows that agents name are verified with evidence about their
// processes.
type Identity struct {
	// Mode is trust (nothing is checked), verify (default: a claim counts until it is refuted) or
	// strict (it counts once it is confirmed).
	Mode string `yaml:"mode"`
	// SparkDirs are the work directories of Spark's standalone workers.
	SparkDirs []string `yaml:"spark_dirs"`
	// Cgroup is the NodeManager's cgroups.hierarchy; default hadoop-yarn.
	Cgroup string `yaml:"cgroup"`
	// Services are the users that DataNodes and balancers run as, named as in block tokens.
	Services []string `yaml:"services"`
}

// IdentitySettings returns the settings of the checker, without the fields that the daemon fills
// in. An error begins with the name of the field that is invalid.
func (n *Node) IdentitySettings() (identity.Settings, error) {
	i := n.Identity
	if i.Mode == "" {
		i.Mode = "verify"
	}
	mode, err := identity.ParseMode(i.Mode)
	if err != nil {
		err = fmt.Errorf("mode %q: use trust, verify or strict", i.Mode)
	}
	for j, d := range i.SparkDirs {
		if !filepath.IsAbs(d) {
			err = errors.Join(err, fmt.Errorf("spark_dirs[%d]: %q: give an absolute path", j, d))
		}
	}
	return identity.Settings{Mode: mode, LocalDirs: n.LocalDirs, SparkDirs: i.SparkDirs, Cgroup: i.Cgroup, Services: i.Services}, err
}
