package cluster

import (
	"context"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/bench/coordination"
)

// shared is what the tests share; machine is the same as the benchmark sees it.
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
