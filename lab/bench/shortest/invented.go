package shortest

import (
	"strings"

	"penstock/lab/bench/together"
	"penstock/lab/contest"
)

// invented returns a result in which each job's time is that of its bytes alone on the disks, or together with
// the others.
func invented(s Setup) Result {
	var runs []together.Run
	rate := float64(s.Disk.WriteRate() * int64(s.Disk.DataNodes))
	for _, row := range append(together.Alone(s.Setup), s.Rows()...) {
		run := together.Run{Row: row.Name, Number: 1, Verdict: &contest.Verdict{StepSeconds: 1, MBps: map[string][]float64{}}}
		for _, j := range s.Jobs {
			alone := row.Name == together.AlonePrefix+j.Name
			if strings.HasPrefix(row.Name, together.AlonePrefix) && !alone {
				continue
			}
			seconds := float64(j.Bytes) / rate
			if !alone {
				seconds *= float64(len(s.Jobs))
			}
			run.Verdict.MBps[j.Name] = []float64{1}
			run.Jobs = append(run.Jobs, together.JobRun{Name: j.Name, CompletionS: seconds, IdleS: seconds / 20, Written: j.Bytes})
		}
		runs = append(runs, run)
	}
	return newResult(s, runs)
}
