package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/wire/orchestrator"
)

// newNodeOffer returns the subcommand `penstock node offer`.
func newNodeOffer() *cobra.Command {
	var bandwidth, node, to, resource string
	cmd := &cobra.Command{
		Use:   "offer --bandwidth MB/S",
		Short: "Print the commands that offer a machine's disk bandwidth to Kubernetes or Mesos",
		Long: `Print the commands by which an operator offers the disk bandwidth of a machine as a resource of
Kubernetes or Mesos (docs/operate/orchestrators.md). Nothing is changed: run the commands where kubectl has the
right to patch the status of nodes, or where the Mesos agent is started.

For YARN, see "penstock install --disk-bandwidth".`,
		Example: `  penstock node offer --bandwidth 200M
  penstock node offer --bandwidth 200M --node worker-1 --to kubernetes
  penstock node offer --bandwidth 200M --to mesos --resource disk_bandwidth`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if bandwidth == "" {
				return cli.Usage(errors.New("give --bandwidth, the MB/s that applications may request on this machine, such as 200M"))
			}
			mb, err := strconv.ParseInt(strings.TrimSuffix(bandwidth, "M"), 10, 64)
			if err != nil {
				return cli.Usage(fmt.Errorf("--bandwidth %q: give MB/s, such as 200M", bandwidth))
			}
			if node == "" {
				if node, err = os.Hostname(); err != nil {
					return err
				}
				node = strings.ToLower(node)
			}
			var steps []orchestrator.Step
			switch to {
			case "kubernetes":
				if resource == "" {
					resource = orchestrator.DefaultResource
				}
				steps, err = orchestrator.Offer{Node: node, Resource: resource, Bandwidth: mb}.Kubernetes()
			case "mesos":
				if resource == "" {
					resource = orchestrator.DefaultScalar
				}
				steps, err = orchestrator.Offer{Resource: resource, Bandwidth: mb}.Mesos()
			default:
				err = fmt.Errorf("--to %q: use kubernetes or mesos", to)
			}
			if err != nil {
				return cli.Usage(err)
			}
			for _, s := range steps {
				fmt.Fprintf(cmd.OutOrStdout(), "# %s\n%s\n", s.Purpose, s.Command)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&bandwidth, "bandwidth", "", "disk bandwidth in `MB/S` that applications may request on the machine, such as 200M")
	cmd.Flags().StringVar(&node, "node", "", "`NAME` of the machine in Kubernetes (default: the host's name)")
	cmd.Flags().StringVar(&to, "to", "kubernetes", "kubernetes or mesos")
	cmd.Flags().StringVar(&resource, "resource", "", "`NAME` of the resource (default: "+orchestrator.DefaultResource+", or "+orchestrator.DefaultScalar+" for mesos)")
	return cmd
}
