package device

import "time"

// Copies of unexported constants of the arbiter that tests need.
const (
	minQuantum     = 64 << 10
	firstStage     = 256 << 10
	leaseBytes     = 1 << 20
	leaseFloor     = 64 << 10
	idleFlowAge    = 5 * time.Minute
	paceDebt       = time.Second
	limitDebt      = 10 * time.Second
	kernelAge      = 35 * time.Second
	maxKept        = 4096
	networkAhead   = 4
	networkQuantum = 256 << 10
	slotWait       = 200 * time.Millisecond
)
