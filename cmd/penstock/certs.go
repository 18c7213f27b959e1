package main

import (
	"errors"
	"fmt"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/broker/certs"
)

func newCertsCommand() *cobra.Command {
	var dir string
	var operators []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "certs --dir DIR [NAME...] [--operator NAME]",
		Short: "Make a development CA, and certificates of it for brokers, nodes and operators",
		Long: `Make a certificate authority for a cluster, for trying things out, and a
certificate with its key for each NAME: the name that a node has for the broker
("broker: node:" in its settings), or the name or address under which nodes reach the
broker. --operator makes one for a person: its organizational unit is "operator", and
the broker lets only those change the policy and ask for nodes and applications. The
authority is made once; run again with the same folder it signs more. Keys are readable
for their owner only; nothing is overwritten.

Brokers take "--ca DIR/ca.pem --cert DIR/NAME.pem --key DIR/NAME.key", nodes the same
as "broker: {ca: ..., cert: ..., key: ...}". Certificates of an authority that you have
already do as well.`,
		Example: "  penstock certs --dir certs broker-1 node-1 node-2 --operator alice",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			if dir == "" || len(names)+len(operators) == 0 {
				return cli.Usage(errors.New("certs: give a folder, --dir DIR, and at least one NAME or --operator NAME"))
			}
			made, err := certs.Make(dir, names, operators)
			if asJSON && err == nil {
				return cli.PrintJSON(cmd, map[string]any{"made": made})
			}
			for _, file := range made {
				fmt.Fprintln(cmd.OutOrStdout(), file)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`FOLDER` of the authority and the certificates")
	cmd.Flags().StringSliceVar(&operators, "operator", nil, "`NAME` of an operator to make a certificate for")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
