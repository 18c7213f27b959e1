package isolation

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"penstock/lab/hadoop"
	"penstock/lab/stand"
	"penstock/ops/install"
)

// Folders of HDFS. Files below floorDir are on the modelled disks that are not contested.
const (
	protectedInput = "/protected/input"
	floorDir       = "/floor"
)

// cluster returns the configuration of Hadoop. Each DataNode has a contested disk, and another disk
// for the data of the aggressor in the phase floor.
func (m *Machine) cluster(s *stand.Stand) hadoop.Config {
	cfg := hadoop.Config{
		Version: m.setup().Hadoop.Version, Replication: m.setup().Hadoop.Replication, BlockSize: m.setup().Hadoop.BlockBytes,
		TaskSlots: max(m.setup().protected().tasks(), m.setup().Aggressor.Slots+m.setup().Aggressor.applications()-1),
	}
	n := m.setup().Disk.DataNodes
	for i := range n {
		contested, other := s.Disks[i].Mount(), s.Disks[n+i].Mount()
		dn := hadoop.DataNode{Volumes: []hadoop.Volume{
			{Dir: filepath.Join(contested, "dfs"), Type: "DISK"},
			{Dir: filepath.Join(other, "dfs"), Type: "SSD"},
		}}
		if m.setup().Intermediate {
			cfg.LocalDirs = append(cfg.LocalDirs, filepath.Join(contested, "local"))
		} else {
			dn.JVMArgs = []string{install.DataNodeOption(m.request.AgentJar, s.Socket(0))}
		}
		cfg.DataNodes = append(cfg.DataNodes, dn)
	}
	if m.setup().Intermediate {
		cfg.Governed = s.Governed(0)
	}
	return cfg
}

// redirect puts the intermediate data of userElsewhere on the disks that are not contested.
func (m *Machine) redirect() error {
	if !m.setup().Intermediate {
		return nil
	}
	var elsewhere []string
	for _, d := range m.Disks[m.setup().Disk.DataNodes:] {
		elsewhere = append(elsewhere, filepath.Join(d.Mount(), "local"))
	}
	return m.Hadoop.Redirect(userElsewhere, elsewhere)
}

// userElsewhere is the user who submits the aggressor in the phase floor. This user's intermediate
// data is on the modelled disks that are not contested, like the aggressor's HDFS data.
const userElsewhere = "elsewhere"

// prepare writes the jobs' inputs, on disks without a limit. In the phase floor, the aggressor
// reads its own copy, which is on the disks that are not contested.
func (m *Machine) prepare(ctx context.Context, phases []Phase) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the jobs' inputs: %w", err)
		}
	}()
	if err := m.Limit(ctx, false); err != nil {
		return err
	}
	fs := m.Hadoop.FS()
	if err := fs.Mkdir(ctx, floorDir); err != nil {
		return err
	}
	if err := fs.SetStoragePolicy(ctx, floorDir, "ALL_SSD"); err != nil {
		return err
	}
	if slices.ContainsFunc(phases, func(p Phase) bool { return !p.Unprotected }) {
		if err := m.prepareInput(ctx, m.setup().protected(), protectedInput); err != nil {
			return err
		}
	}
	for _, elsewhere := range []bool{false, true} {
		if !slices.ContainsFunc(phases, func(p Phase) bool { return p.Against && p.Elsewhere == elsewhere }) {
			continue
		}
		if err := m.prepareInput(ctx, m.setup().aggressor(), aggressorInput(elsewhere)); err != nil {
			return err
		}
	}
	return nil
}

func aggressorInput(elsewhere bool) string { return place(elsewhere) + "/aggressor/input" }

// place returns the HDFS folder above the aggressor's files. If elsewhere is set, the folder is on
// the disks that are not contested.
func place(elsewhere bool) string {
	if elsewhere {
		return floorDir
	}
	return ""
}
