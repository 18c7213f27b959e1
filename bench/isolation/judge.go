package isolation

import (
	"context"
	"time"
)

// Judge asks the modelled disks' own logs whose the device bytes were.
func (m *Machine) Judge(context.Context, time.Time, time.Time, Job, Job) (*Verdict, error) {
	return nil, nil
}
