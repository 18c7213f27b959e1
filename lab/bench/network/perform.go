package network

import (
	"context"
	"fmt"
	"io"
	"strings"

	"penstock/lab/experiment"
	"penstock/lab/ledger"
	"penstock/ops/network"
)

// Setup is everything that may change a figure.
type Setup struct {
	Machine      experiment.Machine `json:"machine"`
	BridgeFilter bool               `json:"bridge_netfilter"` // the kernel has br_netfilter
	network.Setup
}

// DefaultSetup returns the set-up for this machine. A run of all rows takes more than four minutes.
func DefaultSetup() Setup {
	return Setup{experiment.ThisMachine(), network.HasBridgeFilter(), network.DefaultSetup()}
}

// Row is a part that is measured with a set-up.
type Row struct {
	Part  network.Part
	SetUp network.SetUp
}

// Name returns the name of the row.
func (r Row) Name() string { return string(r.Part) + "-" + r.SetUp.Name }

// setUps returns all set-ups: those of ops/network, and those that need a ledger and a folder to be measured.
func setUps(book *ledger.Ledger, dir string) []network.SetUp {
	return append(network.SetUps(), realContainers(book, dir), joinedSetUp(book, dir))
}

// setUpNames returns the names of all set-ups.
func setUpNames() (names []string) {
	for _, s := range setUps(nil, "") {
		names = append(names, s.Name)
	}
	return names
}

// has reports whether the benchmark has a row of the part with the set-up.
func has(part network.Part, setUp string) bool {
	return setUp != Runc || part == network.PartStreams || part == network.PartTrips
}

// rows returns all rows, with the set-ups as setUps returns them. Those of a part follow each other, because they are
// compared.
func rows(book *ledger.Ledger, dir string) (all []Row) {
	for _, part := range network.Parts() {
		for _, setUp := range setUps(book, dir) {
			if has(part, setUp.Name) {
				all = append(all, Row{part, setUp})
			}
		}
	}
	return all
}

// Rows returns the names of all rows.
func Rows() (names []string) {
	for _, r := range rows(nil, "") {
		names = append(names, r.Name())
	}
	return names
}

// Turn is the result of a row in a run.
type Turn struct {
	Row   string       `json:"row"`
	Run   int          `json:"run"`
	Part  network.Part `json:"part"`
	SetUp string       `json:"set_up"`
	network.Figures
}

// Key returns the turn's key.
func (t Turn) Key() experiment.RowTurn { return experiment.RowTurn{Row: t.Row, Run: t.Run} }

func (t Turn) String() string {
	var all []string
	for _, s := range t.Streams {
		all = append(all, fmt.Sprintf("%s: %.0f MB/s, CPU %.2f s/GB (threads %.2f)", s.Way, s.MBPerSecond, s.MachineCPU, s.ThreadsCPU))
	}
	for _, x := range t.Trips {
		what := fmt.Sprintf("%d pairs", x.Pairs)
		if t.Part == network.PartTrips || t.Part == network.PartAwake {
			what = x.Protocol
		} else if !x.OneCPU {
			what += " on all CPUs"
		}
		all = append(all, fmt.Sprintf("%s: mean %.1f us, p50 %.1f us, p99 %.1f us, run queue %.1f us", what, x.MeanUS, x.P50US, x.P99US, x.RunDelayUS))
	}
	return strings.Join(all, "; ")
}

// Request is one benchmark with the options of the command line.
type Request = experiment.RowsRequest[Setup]

// Perform performs the turns that the journal lacks. It returns the result of all finished turns, also after a failure
// or an interruption.
func Perform(ctx context.Context, q Request) (Result, error) {
	if err := q.Validate(); err != nil {
		return Result{}, err
	}
	turns, err := experiment.Table[Setup, Turn]{
		TableRequest: q.TableRequest, Name: "network", Setup: q.Setup,
		// Each turn makes its namespaces, and they end with it. What changes more is recorded.
		Start: func(_ context.Context, dir string) (func(context.Context, experiment.RowTurn) (Turn, error), func() error, error) {
			book, err := ledger.Open(dir)
			if err != nil {
				return nil, nil, err
			}
			return func(ctx context.Context, k experiment.RowTurn) (Turn, error) {
				for _, r := range rows(book, dir) {
					if r.Name() == k.Row {
						f, err := network.Measure(ctx, r.SetUp, r.Part, q.Setup.Setup)
						return Turn{k.Row, k.Run, r.Part, r.SetUp.Name, f}, err
					}
				}
				return Turn{}, fmt.Errorf("no row %q", k.Row)
			}, book.Close, nil
		},
	}.Perform(ctx)
	return newResult(q.Setup, turns), err
}

// Result is the benchmark's result, in the form of --json.
type Result struct {
	experiment.TurnTable[Setup, Turn]
}

func newResult(s Setup, turns []Turn) Result {
	return Result{experiment.TurnTable[Setup, Turn]{Setup: s, Turns: turns}}
}

// WriteJSON writes the result.
func (r Result) WriteJSON(w io.Writer) error {
	r.Claims = r.claims()
	return experiment.WriteJSON(w, r)
}
