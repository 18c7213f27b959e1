package hadoop

import (
	"strings"
)

// Owners attribute the files of DataNodes and NodeManagers to owners, by the files' paths. The path
// of a block contains the block's number. The path of intermediate data contains a folder whose
// name is the application's id.
type Owners struct{ blocks, applications map[string]string }

// NewOwners returns Owners without any files.
func NewOwners() Owners { return Owners{map[string]string{}, map[string]string{}} }

// AddApplications adds applications by their ids.
func (o Owners) AddApplications(owner string, ids ...string) {
	for _, id := range ids {
		o.applications[id] = owner
	}
}

// AddBlocks adds blocks by their names, as Cluster.BlockNames returns them.
func (o Owners) AddBlocks(owner string, names ...string) {
	for _, name := range names {
		o.blocks[name] = owner
	}
}

// Of returns the owner of a file, or "" if it has no owner.
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
