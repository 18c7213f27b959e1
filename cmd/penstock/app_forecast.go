package main

import (
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
}

func newAppForecast() *cobra.Command {
	var a asking
	var share, by string
	cmd := &cobra.Command{
		Use:   "forecast ID",
		Short: "Show when an application will end, at its present share or at another one",
		Long: `Show when an application will end, with an interval that holds the end with a probability of
90 % while the application goes on as in its present phase. The broker learns from the progress that YARN
reports and from the service that nodes report.

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
				return cli.PrintJSON(cmd, forecastJSON{f.GetProgress(), f.GetShare(), f.GetPresent(), f.GetEndUnixMs(), f.GetLowUnixMs(), f.GetHighUnixMs(), f.GetDiskPart(), f.GetDiskError(), f.GetReason()})
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
			return nil
		}),
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&share, "share", "", "a `PART` of the cluster's service from now on, such as 40%")
	cmd.Flags().StringVar(&by, "by", "", "a `TIME`: show the share with which the application ends by then")
	return cmd
}

// endJSON is the progress and the forecast at the present share in the output of app status --json; without
// values that are not known.
type endJSON struct {
	Progress float64 `json:"progress,omitempty"` // 0 to 1
	End      int64   `json:"forecast_end_unix_ms,omitempty"`
	Low      int64   `json:"forecast_low_unix_ms,omitempty"`
	High     int64   `json:"forecast_high_unix_ms,omitempty"`
}

func asEndJSON(s *cluster.ApplicationState) endJSON {
	return endJSON{s.GetProgress(), s.GetForecastEndUnixMs(), s.GetForecastLowUnixMs(), s.GetForecastHighUnixMs()}
}

// endLines are the same as lines of app status.
func endLines(s *cluster.ApplicationState) (lines [][2]string) {
	if s.GetProgress() > 0 {
		lines = append(lines, [2]string{"progress", operate.Percent(s.GetProgress())})
	}
	if s.GetForecastEndUnixMs() > 0 {
		lines = append(lines, [2]string{"ends", fmt.Sprintf("%s, between %s and %s (90 %%)", clock(s.GetForecastEndUnixMs()), clock(s.GetForecastLowUnixMs()), clock(s.GetForecastHighUnixMs()))})
	}
	return lines
}

func clock(unixMs int64) string { return time.UnixMilli(unixMs).Format("2006-01-02 15:04:05") }

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
