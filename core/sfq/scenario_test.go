package sfq_test

import (
	"fmt"
	"testing"

	"penstock/core/sfq"
	"penstock/lab/requests"
)

// TestScenarios plays testdata/*.txt. After a change of rules rewrite them with
// `go test ./core/sfq -run TestScenarios -update` and read the difference.
func TestScenarios(t *testing.T) {
	requests.Scenarios(t, func(algorithm string, cfg sfq.Config) (requests.Scheduler, error) {
		if algorithm != "sfq" {
			return nil, fmt.Errorf("no algorithm %q here", algorithm)
		}
		return sfq.New(cfg)
	})
}
