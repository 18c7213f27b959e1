package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/ops/operate"
	"penstock/wire/cluster"
)

func newAppCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "app",
		Short: "Show the applications' shares of the cluster, and set the weight of one",
		Long: `Show how much of the whole cluster's disks the applications at work get and how much they
are due, as the broker knows it, and set the weights of single applications.

The commands ask the broker as an operator: with an operator's certificate (--ca, --cert,
--key), or without TLS on the broker's own machine.`,
	}
	cmd.AddCommand(newAppList(), newAppStatus(), newAppForecast(), newAppProfile(), newAppPair(), newAppSetWeight(), newAppUnsetWeight())
	return cmd
}

// appJSON is an application as --json prints it.
type appJSON struct {
	Application string   `json:"application"`
	Queue       string   `json:"queue,omitempty"`
	User        string   `json:"user,omitempty"`
	Name        string   `json:"name,omitempty"`
	Type        string   `json:"type,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	State       string   `json:"state,omitempty"`
	Nodes       uint32   `json:"nodes"`
	RateNS      uint64   `json:"rate_ns"` // service, in ns of device time per second
	Weight      float64  `json:"weight"`  // among all applications at work
	Share       float64  `json:"share"`   // 0 to 1
	Due         float64  `json:"due"`     // 0 to 1
	Limit       uint64   `json:"limit"`   // bytes per second at one device; 0: none
	Rule        int32    `json:"rule"`    // index from 0; -1: no rule matched
	Group       string   `json:"group,omitempty"`
	Bytes       uint64   `json:"bytes"`  // moved per second, over all nodes
	Hungry      uint32   `json:"hungry"` // nodes on which it could move more
	// The rates over all nodes, in bytes per second, 0: none; and the history of the reserve.
	TotalReserve uint64       `json:"total_reserve"`
	TotalLimit   uint64       `json:"total_limit"`
	Promise      *promiseJSON `json:"promise,omitempty"`
	// In a queue with "order: shortest".
	Rank           uint32  `json:"rank,omitempty"`            // from 1
	Slice          float64 `json:"slice,omitempty"`           // part of the queue's share, 0 to 1
	RemainingBytes uint64  `json:"remaining_bytes,omitempty"` // estimate
	RemainingError float64 `json:"remaining_error,omitempty"` // relative to the estimate
	// Estimates: the present slowdown, the one since the first stream or the broker's start, and the part of the time, 0 to 1, in
	// which the application waits for disks. 0: not known.
	Slowdown        float64 `json:"slowdown,omitempty"`
	SlowdownOverall float64 `json:"slowdown_overall,omitempty"`
	Waits           float64 `json:"waits,omitempty"`
	// In a queue with "goal: equal-slowdown": the factor of its weight, and its goal.
	Factor       float64 `json:"weight_factor,omitempty"`
	SlowdownGoal float64 `json:"slowdown_goal,omitempty"`
	endJSON
}

// promiseJSON is the history of a total reserve, in windows in which the application wanted the rate.
type promiseJSON struct {
	WindowS uint32   `json:"window_s"`
	Kept    uint32   `json:"kept"`
	Broken  uint32   `json:"broken"`
	Last    []uint64 `json:"last"` // bytes per second in the last windows, the newest last
	// The admission's verdict: admitted, queued or reduced, and the parts of the rate, 0 to 1, that are guaranteed and that
	// would fit.
	State   string  `json:"state"`
	Granted float64 `json:"granted"`
	Fits    float64 `json:"fits"`
}

func asAppJSON(s *cluster.ApplicationState) appJSON {
	var promise *promiseJSON
	if p := s.GetPromise(); p != nil {
		promise = &promiseJSON{p.GetWindowS(), p.GetKept(), p.GetBroken(), p.GetLast(), p.GetState(), p.GetGranted(), p.GetFits()}
	}
	return appJSON{s.GetApplication(), s.GetQueue(), s.GetUser(), s.GetName(), s.GetType(), s.GetTags(), s.GetState(), s.GetNodes(), s.GetRate(),
		s.GetWeight(), s.GetShare(), s.GetDue(), s.GetLimit(), s.GetRule(), s.GetGroup(), s.GetBytes(), s.GetHungry(), s.GetTotalReserve(), s.GetTotalLimit(), promise, s.GetRank(), s.GetSlice(), s.GetRemainingBytes(), s.GetRemainingError(),
		s.GetSlowdown(), s.GetSlowdownOverall(), s.GetWaits(), s.GetFactor(), s.GetSlowdownGoal(), asEndJSON(s)}
}

func newAppList() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the applications at work on the cluster",
		Long: `List the applications at work on nodes that report. DEVICES is an application's service, as
the number of devices that the application keeps busy. SHARE is the application's part of
all service; DUE is the part that its weight gives it among all applications at work. A share
below the due part means that the application's tasks and data are on few devices, or that it
does not want more. SLOWDOWN is an estimate: the run time at the present shares, divided by
the run time that the application would have if it had the disks for itself. DONE is the
progress, ENDS the forecast of the end at the present share ("penstock app forecast" has the
interval), and DEADLINE what is decided about the deadline that the policy gives.`,
		Example: `  penstock app list
  penstock app list --json | jq -r '.[] | select(.share < .due / 2) | .application'`,
		Args: cobra.NoArgs,
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, _ []string) error {
			states, err := c.Applications(cmd.Context(), "")
			if err != nil {
				return err
			}
			if a.asJSON {
				all := []appJSON{}
				for _, s := range states {
					all = append(all, asAppJSON(s))
				}
				return cli.PrintJSON(cmd, all)
			}
			if len(states) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no application is at work at any node that reports (`penstock node list` shows the nodes that report)")
			}
			return operate.Applications(cmd.OutOrStdout(), states)
		}),
	}
	a.flags(cmd)
	return cmd
}

func newAppStatus() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "status ID",
		Short: "Show one application at work, and why it has its weight",
		Args:  arguments(1, 1, "the application's ID"),
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, args []string) error {
			states, err := c.Applications(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if len(states) == 0 {
				return fmt.Errorf("%s is not at work at any node that reports (`penstock app list` lists the applications at work)", args[0])
			}
			s := states[0]
			v, err := c.Policy(cmd.Context(), 0)
			if err != nil {
				return err
			}
			set := v.GetWeights()[s.GetApplication()]
			if a.asJSON {
				return cli.PrintJSON(cmd, struct {
					appJSON
					Policy uint64 `json:"policy"`
					Set    uint32 `json:"set_weight,omitempty"`
				}{asAppJSON(s), v.GetVersion(), set})
			}
			p, err := operate.OfVersion(v)
			if err != nil {
				return err
			}
			g := p.Of(operate.FactsOf(states))[0]
			for _, line := range [][2]string{
				{"application", s.GetApplication()}, {"name", s.GetName()}, {"user", s.GetUser()}, {"queue", s.GetQueue()}, {"type", s.GetType()},
				{"tags", strings.Join(s.GetTags(), ", ")}, {"state", s.GetState()}, {"nodes", fmt.Sprint(s.GetNodes())}, {"devices", operate.Service(s.GetRate())},
				{"weight", fmt.Sprintf("%s among all at work, by %s of version %d", operate.Weight(s.GetWeight()), g.Why(), v.GetVersion())},
				{"share", operate.Percent(s.GetShare())}, {"due", operate.Percent(s.GetDue())}, {"limit", g.Limits()},
				{"moves", cmp.Or(operate.Rate(int64(s.GetBytes())), "0 B/s") + hungry(s)},
			} {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", line[0], operate.Printable(cmp.Or(line[1], "-")))
			}
			if promise := g.Reserves(); promise != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", "reserve", promise)
			}
			if h := s.GetPromise(); h.GetState() == reserve.Queued.String() || h.GetState() == reserve.Reduced.String() {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s: the nodes where it is at work can guarantee %s of its total reserve\n", "admission", h.GetState(), operate.Percent(h.GetFits()))
			}
			for _, line := range endLines(s) {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", line[0], line[1])
			}
			for _, line := range operate.Slowdown(s) {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", line[0], line[1])
			}
			if s.GetRank() > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", "rank", operate.Rank(s))
			}
			if h := s.GetPromise(); h.GetKept()+h.GetBroken() > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s in %d of %d windows of %d s in which it wanted its rate\n", "kept", h.GetKept(), h.GetKept()+h.GetBroken(), h.GetWindowS())
			}
			return nil
		}),
	}
	a.flags(cmd)
	return cmd
}

// hungry says on how many nodes an application could move more.
func hungry(s *cluster.ApplicationState) string {
	if s.GetHungry() == 0 {
		return ""
	}
	return fmt.Sprintf(", and could move more on %d of %d nodes", s.GetHungry(), s.GetNodes())
}

func newAppSetWeight() *cobra.Command {
	var a asking
	var wait time.Duration
	var force bool
	cmd := &cobra.Command{
		Use:   "set-weight ID WEIGHT",
		Short: "Set the weight of one application, in place of the weight that the rules give it",
		Long: `Set the weight of one application among those of its queue. The weight overrides the rules
and the application's tags. Setting a weight makes a new version of the policy. The weight
stays when another policy is applied, and is removed when the application has not been at
work for a day.

The application must be at work at a node, or known to YARN or Spark. Use --force to set
a weight in advance.`,
		Example: `  penstock app set-weight application_1700000000000_0042 8
  penstock app set-weight application_1700000000000_0043 8 --force   # it is not submitted yet`,
		Args: arguments(2, 2, "the application's ID and its WEIGHT"),
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, args []string) error {
			weight, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil || weight < 1 || weight > policy.MaxWeight {
				return cli.Usage(fmt.Errorf("weight %q: use 1 to %d; unset-weight removes a weight", args[1], policy.MaxWeight))
			}
			return setWeight(cmd, c, args[0], uint32(weight), force, wait, a.asJSON)
		}),
	}
	a.flags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "set the weight also if the application is not known")
	waitFlag(cmd, &wait)
	return cmd
}

func newAppUnsetWeight() *cobra.Command {
	var a asking
	var wait time.Duration
	cmd := &cobra.Command{
		Use:     "unset-weight ID",
		Short:   "Remove the weight that was set for one application",
		Example: "  penstock app unset-weight application_1700000000000_0042",
		Args:    arguments(1, 1, "the application's ID"),
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, args []string) error {
			return setWeight(cmd, c, args[0], 0, false, wait, a.asJSON)
		}),
	}
	a.flags(cmd)
	waitFlag(cmd, &wait)
	return cmd
}

func setWeight(cmd *cobra.Command, c *operate.Client, application string, weight uint32, force bool, wait time.Duration, asJSON bool) error {
	if application == "" {
		return cli.Usage(errors.New("give the application's ID"))
	}
	if err := checkWait(wait); err != nil {
		return err
	}
	begin := time.Now()
	v, err := c.SetWeight(cmd.Context(), application, weight, force)
	if err != nil {
		return err
	}
	if at, err := c.Applications(cmd.Context(), application); err == nil && len(at) == 0 && weight > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s is not at work at any node that reports (see `penstock app list`); the weight takes effect once it is\n", operate.Printable(application))
	}
	return live(cmd, c, v, begin, wait, asJSON)
}
