package isolation

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"penstock/lab/blkio"
	"penstock/lab/hadoop"
)

// groups maps the queue of each side to the cgroup of the side's containers. IBIS, section 7.4,
// uses YARN with such cgroups.
type groups map[string]*blkio.Group

// of returns the folder of a queue's cgroup, or "" if the queue has no cgroup.
func (g groups) of(queue string) string {
	if one := g[queue]; one != nil {
		return one.Path
	}
	return ""
}

// remove removes the cgroups. Processes in them move to the root cgroup.
func (g groups) remove() (err error) {
	for _, one := range g {
		err = errors.Join(err, one.Remove())
	}
	return err
}

// groupsPossible returns an error if a phase needs cgroups, but this machine cannot have them.
func (m *Machine) groupsPossible(phases []Phase) error {
	i := slices.IndexFunc(phases, Phase.Grouped)
	if i < 0 {
		return nil
	}
	if _, err := blkio.Mount(); err != nil {
		return fmt.Errorf("phase %s: %w", phases[i].Name, err)
	}
	if !m.setup().Disk.Modelled {
		return fmt.Errorf("phase %s needs modelled disks: the cgroups would limit the machine's own disks", phases[i].Name)
	}
	return nil
}

// makeGroups makes the phase's cgroups. The names are the same in every phase, because the script
// below the containers' JAVA_HOME, which is written once, joins a cgroup by name.
func (m *Machine) makeGroups(p Phase) error {
	if !p.Grouped() {
		return nil
	}
	m.groups = groups{}
	for _, queue := range []string{hadoop.QueueProtected, hadoop.QueueAggressor} {
		g, err := blkio.Make(m.Book, fmt.Sprintf("penstock-%s-%s", filepath.Base(m.Dir), queue))
		if err != nil {
			return err
		}
		m.groups[queue] = g
	}
	protected, aggressor := m.groups[hadoop.QueueProtected], m.groups[hadoop.QueueAggressor]
	if p.GroupWeight > 0 {
		return errors.Join(protected.SetWeight(p.GroupWeight), aggressor.SetWeight(blkio.WeightMin))
	}
	for _, d := range m.Disks {
		if err := aggressor.SetCap(d.Device(), int64(p.GroupCap)*megabyte); err != nil {
			return err
		}
	}
	return nil
}
