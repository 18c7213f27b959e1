package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/node/config"
	"penstock/node/control"
	"penstock/node/control/journal"
)

// newNodePutBack returns the subcommand `penstock node put-back`.
func newNodePutBack() *cobra.Command {
	var file, record string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "put-back --config FILE",
		Short: "Put back what a killed daemon has changed of the system",
		Long: `Put back the changes to the system (cgroups, sockets, queueing disciplines, joined connections) that a
node daemon with kernel control has left because it was killed (docs/operate/control.md). A daemon that is
stopped puts back its changes itself, and a daemon that starts puts back those of the daemon before it. So this
command is for a machine on which no daemon will start again. The packages call it before their removal.

The record of changes is the file that the settings name; --journal names it if the settings cannot be read. A
value that somebody else has changed in the meantime stays. The command refuses while a daemon runs. Run it as the
daemon's user, because a record that another user could have written is refused.

Exit codes: 0 all is put back, or nothing was left; 1 something could not be put back, and stays in the record;
2 wrong flags.`,
		Example: `  penstock node put-back --config /etc/penstock/node.yaml
  penstock node put-back --journal /run/penstock/control.journal`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (file == "") == (record == "") {
				return cli.Usage(errors.New("give the settings file, --config FILE, or the record of changes, --journal FILE"))
			}
			if record == "" {
				settings, err := config.LoadNode(file)
				if err != nil {
					return fmt.Errorf("settings: %w\nIf they cannot be mended, name the record of changes: --journal FILE, usually /run/penstock/control.journal", err)
				}
				record = config.ControlJournal(settings)
			}
			restored, err := control.Restore(record)
			switch {
			case errors.Is(err, journal.ErrInUse):
			case err != nil:
				err = fmt.Errorf("not everything is put back; what is left stays in %s, so run the command again when the cause is removed: %w", record, err)
			}
			if asJSON {
				return errors.Join(err, cli.PrintJSON(cmd, putBackJSON(record, restored)))
			}
			for _, r := range restored {
				if r.Err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "put back by %s: %s (recorded value: %q)\n", r.Mechanism, r.Target, r.Before)
				}
			}
			if err == nil && len(restored) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "nothing to put back: no change is recorded in %s\n", record)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "settings `FILE` of the daemon (YAML)")
	cmd.Flags().StringVar(&record, "journal", "", "`FILE` with the record of changes, instead of --config")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// putBackChange is a recorded change as --json prints it.
type putBackChange struct {
	Mechanism string `json:"mechanism"`
	Target    string `json:"target"`
	Value     string `json:"value"` // what was there before the change
	Error     string `json:"error,omitempty"`
}

func putBackJSON(record string, restored []journal.Restored) map[string]any {
	changes := []putBackChange{}
	for _, r := range restored {
		c := putBackChange{Mechanism: r.Mechanism, Target: r.Target, Value: r.Before}
		if r.Err != nil {
			c.Error = r.Err.Error()
		}
		changes = append(changes, c)
	}
	return map[string]any{"journal": record, "changes": changes}
}
