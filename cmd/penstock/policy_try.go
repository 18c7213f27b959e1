package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"penstock/cmd/internal/cli"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"penstock/core/policy"
	"penstock/ops/operate"
	"penstock/wire/cluster"
)

func newPolicyTest() *cobra.Command {
	var a asking
	var force bool
	var application string
	var stated []string
	cmd := &cobra.Command{
		Use:   "test FILE|--in-force [--application ID] [--facts KEY=VALUE,...]",
		Short: "Show what a policy would give to applications, before it is in force",
		Long: `Show what a policy file, or the policy in force, would give to applications.

Without --facts: to all applications that are at work on the cluster, as the broker knows
them, beside what they have now. WEIGHT is the weight among all applications at work, DUE
the part of the cluster's service that this weight gives, BY the rule's line, or "set" or
"default". In a queue with "order: shortest", the part depends on the remaining work: DUE
is the range from the last rank to the first. FITS says whether the guaranteed rates fit,
as far as it is known before the policy is in force.

With --facts: to an application with these facts (flow, queue, user, name, type, tag,
bandwidth; several tags may be given), as if no other application were at work. With a
FILE, this needs no broker.

A "reserve" is the guaranteed rate on each device. For the deadlines of applications at work,
the broker's present forecast decides whether they would be granted. Nothing is changed.

Exit codes: 0 done; 1 the file has mistakes, no broker answers, or the application is not
at work; 2 wrong use.`,
		Example: `  penstock policy test policy.yaml
  penstock policy test policy.yaml --facts user=alice,queue=root.etl.nightly,tag=gold
  penstock policy test --in-force --application application_1700000000000_0007 --json`,
		Args: arguments(0, 1, "one FILE, or --in-force"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if force == (len(args) == 1) {
				return cli.Usage(errors.New("policy test: give a FILE or --in-force"))
			}
			if len(stated) > 0 && application != "" {
				return cli.Usage(errors.New("policy test: --facts describes an application that is not at work; give it without --application"))
			}
			if len(stated) > 0 && len(args) == 1 {
				p, err := readPolicy(args[0], nil)
				if err != nil {
					return err
				}
				return testFacts(cmd, p, stated, a.asJSON)
			}
			if len(args) == 1 { // report mistakes in the file even if no broker answers
				if _, err := readPolicy(args[0], nil); err != nil {
					return err
				}
			}
			return a.asked(func(cmd *cobra.Command, c *operate.Client, args []string) error {
				old, err := inForce(cmd.Context(), c)
				if err != nil {
					return err
				}
				if len(stated) > 0 {
					return testFacts(cmd, old, stated, a.asJSON)
				}
				tried := old
				if len(args) == 1 {
					if tried, err = readPolicy(args[0], old.Set); err != nil {
						return err
					}
				}
				states, err := c.Applications(cmd.Context(), "")
				if err != nil {
					return err
				}
				changes := operate.Compare(old, tried, operate.FactsOf(states))
				operate.Promised(changes, states)
				if application != "" {
					changes = slices.DeleteFunc(changes, func(c operate.Change) bool { return c.Application != application })
					if len(changes) == 0 {
						return fmt.Errorf("%s is not at work at any node that reports: describe it with --facts", application)
					}
				}
				if a.asJSON {
					return cli.PrintJSON(cmd, changes)
				}
				if len(changes) == 0 {
					fmt.Fprintln(cmd.OutOrStdout(), "no application is at work: describe one with --facts")
					return nil
				}
				if err := operate.Changes(cmd.OutOrStdout(), changes); err != nil {
					return err
				}
				return tryDeadlines(cmd, c, states, changes)
			})(cmd, args)
		},
	}
	a.flags(cmd)
	cmd.Flags().BoolVar(&force, "in-force", false, "the policy in force instead of a file")
	cmd.Flags().StringVar(&application, "application", "", "only this application, by its `ID`")
	cmd.Flags().StringArrayVar(&stated, "facts", nil, "facts about an application: `KEY=VALUE,...`")
	return cmd
}

// maxTried is the number of deadlines that policy test tries.
const maxTried = 20

// tryDeadlines prints what the broker would decide about the deadlines of applications at work.
func tryDeadlines(cmd *cobra.Command, c *operate.Client, states []*cluster.ApplicationState, changes []operate.Change) error {
	submitted := map[string]int64{}
	for _, s := range states {
		submitted[s.GetApplication()] = s.GetSubmittedUnixMs()
	}
	out, tried := cmd.OutOrStdout(), 0
	for _, change := range changes {
		if change.New.Deadline == "" {
			continue
		}
		if tried++; tried > maxTried {
			fmt.Fprintf(out, "only %d deadlines are tried: choose one application with --application\n", maxTried)
			return nil
		}
		name := operate.Printable(change.Application)
		by, known := change.New.By(submitted[change.Application])
		if !known {
			fmt.Fprintf(out, "deadline of %s: refused: the time of its submission is not known\n", name)
			continue
		}
		f, err := c.Forecast(cmd.Context(), &cluster.ForecastRequest{Application: change.Application, ByUnixMs: by})
		if err != nil {
			return err
		}
		verdict := "would be granted, if the nodes can guarantee the rate"
		if why := cmp.Or(f.GetRefusal(), f.GetReason()); why != "" {
			verdict = "refused: " + operate.Printable(why)
		}
		if f.GetRate() > 0 {
			verdict += "; expected to end in time with " + operate.Rate(int64(f.GetRate()))
		}
		fmt.Fprintf(out, "deadline of %s: %s: %s\n", name, operate.Clock(by), verdict)
	}
	return nil
}

// testFacts prints what a policy gives to an application with the stated facts.
func testFacts(cmd *cobra.Command, p *operate.Policy, stated []string, asJSON bool) error {
	facts, err := operate.ParseFacts(stated)
	if err != nil {
		return cli.Usage(fmt.Errorf("--facts: %w", err))
	}
	g := p.Of([]policy.Facts{facts})[0]
	if asJSON {
		return cli.PrintJSON(cmd, g)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "by       %s\nweight   %d", g.Why(), g.Own)
	switch {
	case g.Group != "":
		fmt.Fprintf(out, " in group %s", operate.Printable(g.Group))
	case g.Queue != "":
		fmt.Fprintf(out, " in queue %s", operate.Printable(g.Queue))
	}
	fmt.Fprintf(out, "\nlimit    %s\n", cmp.Or(g.Limits(), "none"))
	if promise := g.Reserves(); promise != "" {
		fmt.Fprintf(out, "reserve  %s\n", promise)
	}
	if goal := g.Goal(); goal != "" {
		fmt.Fprintf(out, "latency  %s\n", goal)
	}
	return nil
}

func newPolicyDiff() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "diff [FILE|VERSION] [VERSION]",
		Short: "Show what a file or a version changes, in the text and for applications at work",
		Long: `Show what would change if a file or a version came into force: in the text, in the form of
diff -u, with weights set for single applications as comments; and for each application
at work whose due part, limit or reserve changes.

The file or version is compared with the policy in force, or with the second argument's
version. Without arguments, the version in force is compared with the one before.`,
		Example: `  penstock policy diff policy.yaml     # before it is applied
  penstock policy diff 3               # before a rollback
  penstock policy diff 5 3             # from version 3 to version 5`,
		Args: arguments(0, 2, "at most a FILE or VERSION, and a VERSION to compare it with"),
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, args []string) error {
			version := func(number uint64) (*operate.Policy, error) {
				v, err := c.Policy(cmd.Context(), number)
				if err != nil {
					return nil, err
				}
				return operate.OfVersion(v)
			}
			newest, err := c.Policy(cmd.Context(), 0)
			if err != nil {
				return err
			}
			current, err := operate.OfVersion(newest)
			if err != nil {
				return err
			}
			old, new := current, current
			switch {
			case len(args) == 0 && newest.GetVersion() < 2:
				return errors.New("there is no version before the one in force: give a FILE")
			case len(args) == 0:
				old, err = version(newest.GetVersion() - 1)
			case len(args) == 2:
				var number uint64
				if number, err = versionArgument(args[1]); err == nil {
					old, err = version(number)
				}
			}
			if err != nil {
				return err
			}
			if len(args) > 0 {
				if number, e := strconv.ParseUint(args[0], 10, 64); e == nil && !isFile(args[0]) {
					if new, err = version(number); err == nil && len(args) == 1 { // as by a rollback
						new, err = operate.ParsePolicy(new.Name, new.Text, old.Set)
					}
				} else {
					new, err = readPolicy(args[0], old.Set)
				}
				if err != nil {
					return err
				}
			}
			states, err := c.Applications(cmd.Context(), "")
			if err != nil {
				return err
			}
			changes := operate.Compare(old, new, operate.FactsOf(states))
			if len(args) == 1 { // otherwise the old policy is not the one that the broker's verdicts are about
				operate.Promised(changes, states)
			}
			changes = slices.DeleteFunc(changes, func(c operate.Change) bool { return !c.Differs() })
			text := ""
			if from, to := old.Document(), new.Document(); !bytes.Equal(from, to) {
				text = udiff.Unified(old.Name, new.Name, string(from), string(to))
			}
			if a.asJSON {
				return cli.PrintJSON(cmd, map[string]any{"old": old.Name, "new": new.Name, "diff": text, "applications": changes, "at_work": len(states)})
			}
			out := cmd.OutOrStdout()
			if text == "" {
				fmt.Fprintf(out, "%s and %s are the same\n", old.Name, new.Name)
				return nil
			}
			fmt.Fprint(out, text)
			switch {
			case len(states) == 0:
				fmt.Fprintln(out, "\nno application is at work")
				return nil
			case len(changes) == 0:
				fmt.Fprintf(out, "\nnone of the %d applications at work gets another share, limit or reserve\n", len(states))
				return nil
			}
			fmt.Fprintf(out, "\n%d of %d applications at work get another share, limit or reserve:\n", len(changes), len(states))
			return operate.Changes(out, changes)
		}),
	}
	a.flags(cmd)
	return cmd
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
