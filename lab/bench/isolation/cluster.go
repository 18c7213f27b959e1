package isolation

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"penstock/lab/hadoop"
	"penstock/ops/install"
)

// HDFS folders. What is below floorDir lies on the other modelled disks.
const (
	protectedInput = "/protected/input"
	floorDir       = "/floor"
	seed           = 20160531 // of all inputs; any number would do
)

func (m *Machine) startCluster(ctx context.Context) error {
	say := m.options.Progress.Printf
	lib, err := hadoop.Fetch(ctx, m.options.CacheDir, m.setup.Hadoop.Version, say)
	if err != nil {
		return err
	}
	cfg := hadoop.Config{
		RunDir: filepath.Join(m.options.RunDir, "hadoop"), Version: m.setup.Hadoop.Version, Lib: lib,
		Replication: m.setup.Hadoop.Replication, BlockSize: m.setup.Hadoop.BlockBytes,
		TaskSlots: max(m.setup.protected().tasks(), m.setup.Aggressor.Slots+m.setup.Aggressor.applications()-1), Progress: say,
		Governed: m.governed(),
	}
	n := m.setup.Disk.DataNodes
	var elsewhere []string
	for i := range n {
		contested, other := m.disks[i].Mount(), m.disks[n+i].Mount()
		dn := hadoop.DataNode{Volumes: []hadoop.Volume{
			{Dir: filepath.Join(contested, "dfs"), Type: "DISK"},
			{Dir: filepath.Join(other, "dfs"), Type: "SSD"},
		}}
		if m.setup.Intermediate {
			cfg.LocalDirs = append(cfg.LocalDirs, filepath.Join(contested, "local"))
			elsewhere = append(elsewhere, filepath.Join(other, "local"))
		} else {
			dn.JVMArgs = []string{install.DataNodeOption(m.options.AgentJar, m.socket())}
		}
		cfg.DataNodes = append(cfg.DataNodes, dn)
	}
	if m.cluster, err = hadoop.Start(ctx, cfg); err != nil || !m.setup.Intermediate {
		return err
	}
	return m.cluster.Redirect(userElsewhere, elsewhere)
}

// userElsewhere submits the floor's aggressor: its intermediate data is on the other modelled
// disks, like its HDFS data.
const userElsewhere = "elsewhere"

// governed returns the agent's settings for tasks and NodeManager, if intermediate data is on
// contested disks. Else only the DataNodes run with the agent.
func (m *Machine) governed() *hadoop.Governed {
	if !m.setup.Intermediate {
		return nil
	}
	return &hadoop.Governed{AgentJar: m.options.AgentJar, Socket: m.socket()}
}

// prepareInputs writes the jobs' inputs, on disks without a limit. The floor's aggressor needs
// a copy of its own on the other disks.
func (m *Machine) prepareInputs(ctx context.Context, phases []Phase) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("prepare the jobs' inputs: %w", err)
		}
	}()
	if err := m.Limit(ctx, false); err != nil {
		return err
	}
	fs := m.cluster.FS()
	if err := fs.Mkdir(ctx, floorDir); err != nil {
		return err
	}
	if err := fs.SetStoragePolicy(ctx, floorDir, "ALL_SSD"); err != nil {
		return err
	}
	if slices.ContainsFunc(phases, func(p Phase) bool { return !p.Unprotected }) {
		if err := m.prepare(ctx, m.setup.protected(), protectedInput); err != nil {
			return err
		}
	}
	for _, elsewhere := range []bool{false, true} {
		if !slices.ContainsFunc(phases, func(p Phase) bool { return p.Against && p.Elsewhere == elsewhere }) {
			continue
		}
		if err := m.prepare(ctx, m.setup.aggressor(), aggressorInput(elsewhere)); err != nil {
			return err
		}
	}
	return nil
}

func aggressorInput(elsewhere bool) string { return place(elsewhere) + "/aggressor/input" }

// place is the HDFS folder of a phase's aggressor.
func place(elsewhere bool) string {
	if elsewhere {
		return floorDir
	}
	return ""
}
