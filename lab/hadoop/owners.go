package hadoop

import (
	"strings"
)

// Owners attribute the files of DataNodes and NodeManagers to owners, by the files' paths: blocks by
// their number, intermediate data by the application after which YARN named its folder.
type Owners struct{ blocks, applications map[string]string }

// NewOwners returns Owners without any files.
func NewOwners() Owners { return Owners{map[string]string{}, map[string]string{}} }

// AddApplications adds applications by their ids.
func (o Owners) AddApplications(owner string, ids ...string) {
	for _, id := range ids {
		o.applications[id] = owner
	}
}

// AddBlocks adds blocks by their names, such as those of Cluster.BlockNames.
func (o Owners) AddBlocks(owner string, names ...string) {
	for _, name := range names {
		o.blocks[name] = owner
	}
}

// Of returns the owner of a file, "" if there is none.
func (o Owners) Of(path string) string {
	if name := BlockName(path); name != "" {
		return o.blocks[name]
	}
	for name := range strings.SplitSeq(path, "/") {
		if owner, ok := o.applications[name]; ok {
			return owner
		}
	}
	return ""
}
