package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/core/reserve"
	"penstock/ops/operate"
	"penstock/wire/cluster"
)

// forecastJSON is a forecast as --json prints it.
type forecastJSON struct {
	Progress  float64 `json:"progress"` // 0 to 1; below 0: not known
	Share     float64 `json:"share"`    // of the forecast, 0 to 1
	Present   float64 `json:"present_share"`
	End       int64   `json:"end_unix_ms"`
	Low       int64   `json:"low_unix_ms"`
	High      int64   `json:"high_unix_ms"`
	DiskPart  float64 `json:"disk_part"`  // part of the time that depends on the share, 0 to 1
	DiskError float64 `json:"disk_error"` // its standard error
	Reason    string  `json:"reason,omitempty"`
	Ended     bool    `json:"ended,omitempty"`
	// With --by: the rate at which the application moves bytes with the share, in bytes per second; and why a policy's deadline at
	// this time would not be granted.
	Rate    uint64 `json:"rate,omitempty"`
	Refusal string `json:"refusal,omitempty"`
	// From how many earlier runs the forecast comes, and the part of the work that is done, 0 to 1.
	EarlierRuns uint32  `json:"earlier_runs"`
	Done        float64 `json:"done"`
}

func newAppForecast() *cobra.Command {
	var a asking
	var share, by string
	cmd := &cobra.Command{
		Use:   "forecast ID",
		Short: "Show when an application will end, at its present share or at another one",
		Long: `Show when an application will end, with an interval that holds the end with a probability of
90 % while the application goes on as in its present phase. The broker learns from the progress that YARN
and Spark drivers report and from the service that nodes report. If it has seen earlier runs of the same user with
the same name, apart from numbers, it knows which part of the work the progress stands for, and says from how many runs.

--share assumes another part of the cluster's service from now on. --by shows the share with which the
application is expected to end by a time: a duration from now (2h), a time of day (18:00), or
a time such as 2026-11-25T18:00:00Z.`,
		Example: `  penstock app forecast application_1700000000000_0042
  penstock app forecast application_1700000000000_0042 --share 40%
  penstock app forecast application_1700000000000_0042 --by 18:00`,
		Args: arguments(1, 1, "the application's ID"),
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, args []string) error {
			q := &cluster.ForecastRequest{Application: args[0]}
			if share != "" && by != "" {
				return cli.Usage(errors.New("give --share or --by, not both"))
			}
			if share != "" {
				part, isPart, err := reserve.ParsePart(share)
				if err != nil || !isPart {
					return cli.Usage(fmt.Errorf("--share %.40q: use a part of the cluster's service such as 40%%", share))
				}
				q.Share = part
			}
			if by != "" {
				at, err := parseBy(by, time.Now())
				if err != nil {
					return cli.Usage(err)
				}
				q.ByUnixMs = at.UnixMilli()
			}
			f, err := c.Forecast(cmd.Context(), q)
			if err != nil {
				return err
			}
			if a.asJSON {
				return cli.PrintJSON(cmd, forecastJSON{f.GetProgress(), f.GetShare(), f.GetPresent(), f.GetEndUnixMs(), f.GetLowUnixMs(), f.GetHighUnixMs(), f.GetDiskPart(), f.GetDiskError(), f.GetReason(), f.GetEnded(), f.GetRate(), f.GetRefusal(), f.GetEarlierRuns(), f.GetDone()})
			}
			if f.GetReason() != "" {
				return fmt.Errorf("no forecast for %s: %s", operate.Printable(args[0]), f.GetReason())
			}
			for _, line := range [][2]string{
				{"progress", operate.Percent(f.GetProgress())},
				{"share", fmt.Sprintf("%s; now %s", operate.Percent(f.GetShare()), operate.Percent(f.GetPresent()))},
				{"ends", clock(f.GetEndUnixMs())},
				{"between", fmt.Sprintf("%s and %s (90 %%)", clock(f.GetLowUnixMs()), clock(f.GetHighUnixMs()))},
				{"disk", fmt.Sprintf("%s of its time depends on the share, +- %s", operate.Percent(f.GetDiskPart()), operate.Percent(f.GetDiskError()))},
			} {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", line[0], line[1])
			}
			if runs := f.GetEarlierRuns(); runs > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s of the work is done, as known from %d earlier runs\n", "history", operate.Percent(f.GetDone()), runs)
			}
			if f.GetRate() > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s over all devices, while it uses them\n", "rate", operate.Rate(int64(f.GetRate())))
			}
			if by != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", "deadline", operate.Printable(cmp.Or(f.GetRefusal(), "a policy's deadline at this time would be granted, if the nodes can guarantee the rate")))
			}
			return nil
		}),
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&share, "share", "", "a `PART` of the cluster's service from now on, such as 40%")
	cmd.Flags().StringVar(&by, "by", "", "a `TIME`: show the share with which the application ends by then")
	return cmd
}

// endJSON is the progress, the forecast at the present share, and the deadline in the output of app list and app status; without values
// that are not known.
type endJSON struct {
	Progress float64 `json:"progress,omitempty"` // 0 to 1
	End      int64   `json:"forecast_end_unix_ms,omitempty"`
	Low      int64   `json:"forecast_low_unix_ms,omitempty"`
	High     int64   `json:"forecast_high_unix_ms,omitempty"`
	// With a deadline. The state is granted, held, refused, missed, queued or reduced.
	Deadline       int64  `json:"deadline_unix_ms,omitempty"`
	DeadlineState  string `json:"deadline_state,omitempty"`
	DeadlineReason string `json:"deadline_reason,omitempty"`
	DeadlineRate   uint64 `json:"deadline_rate,omitempty"` // that is needed, in bytes per second over all devices
}

func asEndJSON(s *cluster.ApplicationState) endJSON {
	return endJSON{s.GetProgress(), s.GetForecastEndUnixMs(), s.GetForecastLowUnixMs(), s.GetForecastHighUnixMs(),
		s.GetDeadlineUnixMs(), s.GetDeadlineState(), s.GetDeadlineReason(), s.GetDeadlineRate()}
}

// endLines are the same as lines of app status.
func endLines(s *cluster.ApplicationState) (lines [][2]string) {
	if s.GetProgress() > 0 {
		lines = append(lines, [2]string{"progress", operate.Percent(s.GetProgress())})
	}
	if s.GetForecastEndUnixMs() > 0 {
		lines = append(lines, [2]string{"ends", fmt.Sprintf("%s, between %s and %s (90 %%)", clock(s.GetForecastEndUnixMs()), clock(s.GetForecastLowUnixMs()), clock(s.GetForecastHighUnixMs()))})
	}
	if deadline := operate.Deadline(s); deadline != "" {
		if s.GetDeadlineRate() > 0 {
			deadline += fmt.Sprintf("; it needs %s, and is guaranteed %s", operate.Rate(int64(s.GetDeadlineRate())), cmp.Or(operate.Rate(int64(float64(s.GetTotalReserve())*s.GetPromise().GetGranted())), "nothing"))
		}
		lines = append(lines, [2]string{"deadline", operate.Printable(deadline)})
	}
	return lines
}

func clock(unixMs int64) string { return operate.Clock(unixMs) }

// parseBy parses a duration from now, a time of day (the next one), or a time with date and zone. The result is later than
// now.
func parseBy(text string, now time.Time) (time.Time, error) {
	at := time.Time{}
	if d, err := time.ParseDuration(text); err == nil {
		at = now.Add(d)
	} else if t, err := time.ParseInLocation("15:04", text, now.Location()); err == nil {
		at = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), 0, 0, now.Location())
		if !at.After(now) {
			at = at.AddDate(0, 0, 1)
		}
	} else if at, err = time.Parse(time.RFC3339, text); err != nil {
		return at, fmt.Errorf("--by %.40q: use a duration such as 2h, a time of day such as 18:00, or 2026-11-25T18:00:00Z", text)
	}
	if !at.After(now) {
		return at, fmt.Errorf("--by %.40q: this time has passed", text)
	}
	return at, nil
}
