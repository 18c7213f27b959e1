package cluster

import (
	"context"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/bench/coordination"
)

// shared is the stand of all tests; machine is the same stand in the form of the benchmark.
var (
	shared  fixture.Stand
	machine *coordination.Machine
)

func TestMain(m *testing.M) {
	spec := coordination.Spec()
	spec.Name = "cluster"
	fixture.Main(m, &shared, spec, func(context.Context) error {
		machine = coordination.On(shared.Stand)
		return nil
	})
}
