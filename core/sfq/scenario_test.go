package sfq_test

import (
	"fmt"
	"testing"

	"penstock/core/sfq"
	"penstock/lab/requests"
)

// TestScenarios runs the scenarios in testdata/*.txt. After a change of the rules, rewrite the
// files with `go test ./core/sfq -run TestScenarios -update` and read the difference.
func TestScenarios(t *testing.T) {
	requests.Scenarios(t, func(algorithm string, cfg sfq.Config) (requests.Scheduler, error) {
		if algorithm != "sfq" {
			return nil, fmt.Errorf("this test has no algorithm %q", algorithm)
		}
		return sfq.New(cfg)
	})
}
