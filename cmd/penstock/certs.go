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
		Short: "Make a development CA, and certificates for brokers, nodes and operators",
		Long: `Make a certificate authority for a cluster, for trying things out, and a certificate with
its key for each NAME. NAME is the name of a node ("broker: node:" in its settings), or
the name or address under which nodes reach a broker. --operator makes a certificate for a
person, with the organizational unit "operator". The broker lets only operators change the
policy and list nodes and applications. The authority is made once; with the same folder,
the command later signs more certificates. Only the owner can read the keys. Nothing is
overwritten.

Give a broker "--ca DIR/ca.pem --cert DIR/NAME.pem --key DIR/NAME.key". Name the same files
in a node's settings as "broker: {ca: ..., cert: ..., key: ...}". Certificates of an authority
that you already have work as well.`,
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
