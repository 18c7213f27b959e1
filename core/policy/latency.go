package policy

import (
	"fmt"
	"time"
)

// Range of a latency goal.
const (
	MinLatency = 10 * time.Millisecond
	MaxLatency = 10 * time.Second
)

// CheckLatency returns an error for a latency goal that is out of range. 0 means none.
func CheckLatency(goal time.Duration) error {
	if goal != 0 && (goal < MinLatency || goal > MaxLatency) {
		return fmt.Errorf("latency %v: use %v to %v", goal, MinLatency, MaxLatency)
	}
	return nil
}
