package coordination

import (
	"time"

	"penstock/core/coord"
)

// noteWaits adds an application's waiting for a device in one period to its entry. all is the device's service in the period.
func noteWaits(e *entry, u Use, all, length time.Duration) {
	e.sum.AddWaits(coord.Waits{Streams: u.Streams, Waited: u.Waited, Contended: u.Contended, Served: u.Service, All: all}, length)
}
