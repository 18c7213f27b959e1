package isolation

import (
	"cmp"
	"context"
	"time"

	"penstock/lab/contest"
	"penstock/lab/judge"
)

// Judge attributes the requests in the modelled disks' logs to the two sides. Without intermediate
// data, the extents of files are read once, after the window, because no block file of either job is
// deleted earlier.
func (m *Machine) Judge(ctx context.Context, from, to time.Time, protected, aggressor *contest.Job) (*contest.Verdict, error) {
	if !m.setup().Disk.Modelled {
		return nil, nil
	}
	return contest.Judge(ctx, m.Hadoop, cmp.Or(m.watched, judge.NewDisks(m.Disks)), from, to,
		map[string]*contest.Job{ownerProtected: protected, ownerAggressor: aggressor})
}
