package network

import (
	"context"
	"errors"
	"fmt"
	"os"

	"penstock/lab/joined"
	"penstock/lab/ledger"
	"penstock/ops/network"
)

// joinedSetUp returns bridge-nat with joined sockets (node/control/join). Only the measured containers' sockets are
// joined: these processes are in a cgroup of their own. dir is a folder for the journal and for the programs.
func joinedSetUp(book *ledger.Ledger, dir string) network.SetUp {
	var setUp network.SetUp
	for _, s := range network.SetUps() {
		if s.Name == network.BridgeNAT {
			setUp = s
		}
	}
	setUp.Name, setUp.About = network.Joined, "the same, with the two sockets joined"
	setUp.Accelerate = func(ctx context.Context, site *network.Site) (undo func() error, err error) {
		group, err := joined.NewGroup(book, fmt.Sprintf("penstock-lab-network-%d", os.Getpid()))
		if err != nil {
			return nil, err
		}
		for _, container := range site.Containers() {
			if err := group.Add(container.PID); err != nil {
				return nil, errors.Join(err, group.Remove())
			}
		}
		j, err := joined.Start(ctx, joined.Options{Book: book, Dir: dir, Group: group, Do: site.Do})
		if err != nil {
			return nil, errors.Join(err, group.Remove())
		}
		return func() error { return errors.Join(j.Stop(), group.Remove(), j.Any()) }, nil
	}
	return setUp
}
