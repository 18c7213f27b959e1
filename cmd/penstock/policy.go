package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"penstock/broker/policyfile"
	"penstock/ops/operate"
	"penstock/settings"
	"penstock/wire/cluster"
)

func newPolicyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check, try, apply and look back at the cluster's policy",
		Long: `The policy says what each application of the cluster is due: rules, weights of
queues, groups and limits, in one YAML file (docs/operate/policy.md). The broker keeps
its versions; nodes receive the newest one with the answer to their next report.

"check" and "test --facts" need no broker. The other commands ask the broker as an operator:
with an operator's certificate (--ca, --cert, --key), or without TLS on the broker's own
machine.`,
	}
	cmd.AddCommand(newPolicyCheck(), newPolicyTest(), newPolicyDiff(), newPolicyApply(), newPolicyHistory(), newPolicyShow(), newPolicyRollback(), newPolicyCanary(), newPolicyKillSwitch())
	return cmd
}

// readPolicy reads and checks a policy file. set are the weights set for single applications, which
// apply in addition.
func readPolicy(file string, set map[string]int) (*operate.Policy, error) {
	text, err := settings.Read(file, policyfile.MaxBytes)
	if err != nil {
		return nil, err
	}
	return operate.ParsePolicy(file, text, set)
}

func newPolicyCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a policy file, without a broker",
		Long: `Check a policy file. All mistakes are listed, with line and column. A warning names each rule
that never applies, because an earlier rule matches the same applications; each deadline that
has passed; and each deadline whose guaranteed rate is bounded by a limit of the same rule.

Exit codes: 0 the file is good; 1 it is not; 2 wrong use.`,
		Args: arguments(1, 1, "the policy FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := readPolicy(args[0], nil)
			if err != nil {
				if asJSON {
					return errors.Join(cli.PrintJSON(cmd, map[string]any{"file": args[0], "good": false, "mistake": err.Error(), "mistakes": settings.MistakesOf(err)}), err)
				}
				return err
			}
			rules, queues, reserved := p.Counts()
			if asJSON {
				return cli.PrintJSON(cmd, map[string]any{"file": args[0], "good": true, "rules": rules, "queues": queues, "reserved": reserved, "warnings": append([]string{}, p.Warnings()...)})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is good: %s, %s\n", args[0], operate.Counted(rules, "rule"), operate.Counted(queues, "queue"))
			warn(cmd, p)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// warn prints the policy's warnings to standard error.
func warn(cmd *cobra.Command, p *operate.Policy) {
	for _, w := range p.Warnings() {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", p.Name, w)
	}
}

func newPolicyApply() *cobra.Command {
	var a asking
	var note, canary string
	var base uint64
	var wait time.Duration
	var force bool
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Put a policy file into force on the whole cluster",
		Long: `Check a policy file, make it the newest version, and wait until all nodes that report
have it. Weights set for single applications ("penstock app set-weight") stay.

With --base N the command fails if another version than N is in force, so that nobody's
change is lost: take N from "penstock policy history" when you copy the policy.

With --canary N% only that part of the nodes gets the policy, until "penstock policy canary
complete" or "take-back" ends the canary. The part is chosen by a hash of the nodes' names,
so it is always the same nodes, and a larger part contains each smaller one. The same file
with a larger --canary extends the canary.

A rule that limits all applications is refused unless --force is given.

Exit codes: 0 the policy is in force at all nodes; 1 the policy was refused, or was not in
force at all nodes in time (it stays the newest version, and nodes get it when they report);
2 wrong use.`,
		Example: `  penstock policy apply policy.yaml --note "nightly jobs first"
  penstock policy apply policy.yaml --canary 10%
  penstock policy show > policy.yaml && vi policy.yaml && penstock policy apply policy.yaml --base 7`,
		Args: arguments(1, 1, "the policy FILE"),
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, args []string) error {
			if err := checkWait(wait); err != nil {
				return err
			}
			percent, err := canaryPercent(canary)
			if err != nil {
				return cli.Usage(err)
			}
			p, err := readPolicy(args[0], nil)
			if err != nil {
				return err
			}
			begin := time.Now()
			v, err := c.Apply(cmd.Context(), &cluster.ApplyRequest{Text: p.Text, Base: base, Note: note, Force: force, CanaryPercent: percent})
			if err != nil {
				return err
			}
			warn(cmd, p)
			return live(cmd, c, v, begin, wait, a.asJSON)
		}),
	}
	a.flags(cmd)
	noteFlag(cmd, &note)
	cmd.Flags().StringVar(&canary, "canary", "", "put the policy into force at `N%` of the nodes first, 1% to 99%")
	forceFlag(cmd, &force)
	cmd.Flags().Uint64Var(&base, "base", 0, "the `VERSION` that the file was made from; fails if another version is in force (default: any version)")
	waitFlag(cmd, &wait)
	return cmd
}

func newPolicyHistory() *cobra.Command {
	var a asking
	var limit int
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List the policy's versions, newest first",
		Args:  cobra.NoArgs,
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, _ []string) error {
			if limit < 1 || limit > 1000 {
				return cli.Usage(fmt.Errorf("--limit %d: use 1 to 1000", limit))
			}
			versions, err := c.History(cmd.Context(), limit)
			if err != nil {
				return err
			}
			if a.asJSON {
				all := []versionJSON{}
				for _, v := range versions {
					all = append(all, asVersionJSON(v))
				}
				return cli.PrintJSON(cmd, all)
			}
			if len(versions) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), noPolicy)
			}
			return operate.Table(cmd.OutOrStdout(), "VERSION|TIME|AUTHOR|NOTE", func(add func(...string)) {
				for _, v := range versions {
					add(fmt.Sprint(v.GetVersion()), time.UnixMilli(v.GetUnixMs()).Format(time.DateTime), v.GetAuthor(), v.GetNote())
				}
			})
		}),
	}
	a.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 20, "maximum number of versions, 1 to 1000")
	return cmd
}

// versionJSON is a version as --json prints it.
type versionJSON struct {
	Version uint64            `json:"version"`
	Time    time.Time         `json:"time,omitzero"`
	Author  string            `json:"author"`
	Note    string            `json:"note"`
	Text    string            `json:"text,omitempty"`
	Set     map[string]uint32 `json:"set_weights,omitempty"`
	// The kill switch is on in this version; the part of the nodes that has the canary's text, in percent.
	KillSwitch    bool   `json:"kill_switch"`
	CanaryPercent uint32 `json:"canary_percent"`
	CanaryText    string `json:"canary_text,omitempty"`
}

func asVersionJSON(v *cluster.PolicyVersion) versionJSON {
	var at time.Time // zero if there is no version
	if ms := v.GetUnixMs(); ms > 0 {
		at = time.UnixMilli(ms).UTC()
	}
	return versionJSON{v.GetVersion(), at, v.GetAuthor(), v.GetNote(), string(v.GetText()), v.GetWeights(),
		v.GetOff(), v.GetCanaryPercent(), string(v.GetCanaryText())}
}

// noPolicy is the message when there is no version.
const noPolicy = "no policy was applied yet (`penstock policy apply` does that)"

// versionOf asks the broker for a version; 0 stands for the newest.
func versionOf(cmd *cobra.Command, c *operate.Client, number uint64) (*cluster.PolicyVersion, error) {
	v, err := c.Policy(cmd.Context(), number)
	var refused *operate.Error
	if errors.As(err, &refused) && refused.Code == codes.NotFound {
		return nil, fmt.Errorf("version %d: %w (`penstock policy history` lists them)", number, err)
	}
	return v, err
}

// versionArgument reads a version's number.
func versionArgument(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, cli.Usage(fmt.Errorf("version %q: give one of the version numbers that `penstock policy history` lists", text))
	}
	return n, nil
}

func newPolicyShow() *cobra.Command {
	var a asking
	var canary bool
	cmd := &cobra.Command{
		Use:   "show [VERSION]",
		Short: "Print the policy in force, or another version, as it was applied",
		Long: `Print the policy in force, or another version, as it was applied, so that it can be
edited and applied again. Weights set for single applications, the kill switch and a canary
are named on standard error. With --canary, the canary's policy is printed.`,
		Args: arguments(0, 1, "at most one VERSION"),
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, args []string) error {
			version := uint64(0)
			var err error
			if len(args) == 1 {
				if version, err = versionArgument(args[0]); err != nil {
					return err
				}
			}
			v, err := versionOf(cmd, c, version)
			if err != nil {
				return err
			}
			if v.GetVersion() == 0 && !a.asJSON {
				fmt.Fprintln(cmd.ErrOrStderr(), noPolicy+"; this applies:")
			}
			if a.asJSON {
				return cli.PrintJSON(cmd, asVersionJSON(v))
			}
			for _, name := range slices.Sorted(maps.Keys(v.GetWeights())) {
				fmt.Fprintf(cmd.ErrOrStderr(), "weight set for %s: %d\n", operate.Printable(name), v.GetWeights()[name])
			}
			text := v.GetText()
			if canary {
				if text = v.GetCanaryText(); v.GetCanaryPercent() == 0 {
					return fmt.Errorf("version %d has no canary", v.GetVersion())
				}
			} else {
				applied{KillSwitch: v.GetOff(), CanaryPercent: v.GetCanaryPercent()}.notes(cmd, false)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		}),
	}
	a.flags(cmd)
	cmd.Flags().BoolVar(&canary, "canary", false, "print the canary's policy")
	return cmd
}

func newPolicyRollback() *cobra.Command {
	var a asking
	var wait time.Duration
	var force bool
	cmd := &cobra.Command{
		Use:   "rollback VERSION",
		Short: "Apply the text of an earlier version as a new one",
		Long: `Apply the text of an earlier version as a new one, and wait as "policy apply" does.
Weights set for single applications stay as they are.`,
		Example: `  penstock policy history          # which version?
  penstock policy rollback 7`,
		Args: arguments(1, 1, "the VERSION to go back to"),
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, args []string) error {
			if err := checkWait(wait); err != nil {
				return err
			}
			number, err := versionArgument(args[0])
			if err != nil {
				return err
			}
			old, err := versionOf(cmd, c, number)
			if err != nil {
				return err
			}
			begin := time.Now()
			v, err := c.Apply(cmd.Context(), &cluster.ApplyRequest{Text: old.GetText(), Note: fmt.Sprintf("back to version %d", number), Force: force})
			if err != nil {
				return err
			}
			return live(cmd, c, v, begin, wait, a.asJSON)
		}),
	}
	a.flags(cmd)
	forceFlag(cmd, &force)
	waitFlag(cmd, &wait)
	return cmd
}
