package sim

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"penstock/settings"
)

// Load reads and checks a scenario. The error lists all mistakes in the file, as settings.Mistakes.
func Load(file string) (*Scenario, error) {
	s := &Scenario{}
	doc, err := settings.Load(file, maxFile, s)
	if err != nil {
		return nil, err
	}
	doc.Add("", s.validate())
	if err := doc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s.dir = filepath.Dir(file)
	return s, nil
}

// New returns a scenario that was not read from a file, with its defaults.
func New(s Scenario) (*Scenario, error) {
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("scenario %q: %w", s.Title, err)
	}
	return &s, nil
}

// validate fills in the defaults and checks the scenario. Each error begins with the path of its
// field.
func (s *Scenario) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	s.Length = cmp.Or(s.Length, settings.Duration(time.Minute))
	s.Window = cmp.Or(s.Window, settings.Duration(time.Second))
	s.Exchange.Period = cmp.Or(s.Exchange.Period, settings.Duration(time.Second))
	s.Expect.Recovery = cmp.Or(s.Expect.Recovery, settings.Duration(3*time.Second))
	check(time.Duration(s.Length) <= maxLength, "length %v: use at most %v", time.Duration(s.Length), maxLength)
	check(s.Settle < s.Length, "settle %v: must be less than the length", time.Duration(s.Settle))
	check(time.Duration(s.Window) >= 100*time.Millisecond && s.Window <= s.Length, "window %v: use 100ms or more, up to the length", time.Duration(s.Window))
	nodes, applications := 0, 0
	changes := len(s.Events)
	names, all := map[string]bool{}, map[string]bool{}
	check(len(s.Nodes) > 0, "nodes: give at least one entry")
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Count = cmp.Or(n.Count, 1)
		check(n.Count > 0 && n.Count <= MaxNodes, "nodes[%d]: count %d: use 1 to %d", i, n.Count, MaxNodes)
		n.Datanodes, n.Scheduler = cmp.Or(n.Datanodes, 1), cmp.Or(n.Scheduler, eachDevice)
		check(n.Datanodes > 0 && n.Datanodes <= maxDatanodes, "nodes[%d]: datanodes %d: use 1 to %d", i, n.Datanodes, maxDatanodes)
		check(n.Scheduler == eachDevice || n.Scheduler == eachDatanode, "nodes[%d]: scheduler %q: use device or datanode", i, n.Scheduler)
		nodes += max(0, min(n.Count, MaxNodes)) * max(1, min(n.Datanodes, maxDatanodes))
		_, err := n.config()
		check(err == nil, "nodes[%d]: %v", i, err)
	}
	check(nodes <= MaxNodes, "the scenario has %d nodes: use at most %d", nodes, MaxNodes)
	check(len(s.Applications)+len(s.Jobs)+len(s.Traces) > 0, "applications: give at least one application, job or trace")
	for i := range s.Applications {
		a := &s.Applications[i]
		a.Count, a.Weight = cmp.Or(a.Count, 1), cmp.Or(a.Weight, 1)
		check(a.Name != "" && !names[a.Name], "applications[%d]: name %q: give each entry a name that no other entry has", i, a.Name)
		names[a.Name] = true
		for n := range max(0, min(a.Count, MaxApplications)) {
			name := a.nameOf(n)
			check(!all[name], "applications[%d]: two applications would have the name %q: rename one", i, name)
			all[name] = true
		}
		check(a.Count > 0 && a.Count <= MaxApplications, "applications[%d]: count %d: use 1 to %d", i, a.Count, MaxApplications)
		applications += max(0, min(a.Count, MaxApplications))
		check(a.Weight >= 0.001 && a.Weight <= 1000, "applications[%d]: weight %v: use 0.001 to 1000", i, a.Weight)
		check(a.Spread >= 0 && a.Spread <= 1 && (a.Spread == 0 || a.On == nil), "applications[%d]: give either on, or spread from 0 to 1", i)
		check(a.IO == "" || a.IO == "read" || a.IO == "write", "applications[%d]: io %q: use read or write", i, a.IO)
		if a.Size > 0 {
			a.Pause = cmp.Or(a.Pause, settings.Duration(20*time.Millisecond))
		}
		a.validateGuarantees(i, check)
		if move := time.Duration(a.Move); move >= time.Second {
			changes += min(maxChanges, int(time.Duration(s.Length)/move+1)) * max(1, min(a.Count, MaxApplications))
		}
		check((a.OnFor == 0) == (a.OffFor == 0), "applications[%d]: give both on_for and off_for, or neither", i)
		check(a.OnFor == 0 || min(time.Duration(a.OnFor), time.Duration(a.OffFor)) >= 10*time.Millisecond, "applications[%d]: on_for and off_for: use at least 10ms", i)
		if turn := time.Duration(a.OnFor + a.OffFor); turn >= 20*time.Millisecond {
			changes += min(maxChanges, int(time.Duration(s.Length)/turn+1)) * 2 * max(1, min(a.Count, MaxApplications))
		}
		for _, n := range a.On {
			check(n >= 0 && n < nodes, "applications[%d]: on: there is no node %d: the scenario has %d, numbered from 0", i, n, nodes)
		}
	}
	check(changes <= maxChanges, "there are %d events and changes of applications between on and off: use at most %d", changes, maxChanges)
	check(applications <= MaxApplications, "the scenario has %d applications: use at most %d", applications, MaxApplications)
	check(nodes*applications <= maxFlows, "%d nodes with %d applications each are too many flows: use at most %d", nodes, applications, maxFlows)
	e := &s.Exchange
	e.Rule = cmp.Or(e.Rule, ruleParts)
	check(e.Rule == ruleParts || e.Rule == ruleDSFQ, "exchange: rule %q: use parts or dsfq", e.Rule)
	alwaysOn := len(s.Jobs)+len(s.Traces) == 0
	for _, a := range s.Applications {
		alwaysOn = alwaysOn && a.Begin == 0 && a.OnFor == 0
	}
	check(e.Rule != ruleDSFQ || alwaysOn, "exchange: rule dsfq needs applications that are always on: remove begin, on_for, jobs and traces")
	check(time.Duration(e.Period) >= 10*time.Millisecond, "exchange: period %v: use at least 10ms", time.Duration(e.Period))
	check(e.DelayMin <= e.DelayMax || e.DelayMax == 0, "exchange: delay_min is greater than delay_max")
	check(e.Loss >= 0 && e.Loss <= 0.9, "exchange: loss %v: use 0 to 0.9", e.Loss)
	check(e.Session == 0 || time.Duration(e.Session) >= time.Second && time.Duration(e.Session) <= 5*time.Minute, "exchange: session %v: use 1s to 5m", time.Duration(e.Session))
	for _, j := range s.Jobs {
		check(!all[cmp.Or(j.Application, j.Name)], "jobs: the name %q belongs to an application already: use another name", cmp.Or(j.Application, j.Name))
		names[j.Name] = true
	}
	for _, t := range s.Traces {
		check(!all[cmp.Or(t.Application, t.Name)], "traces: the name %q belongs to an application already: use another name", cmp.Or(t.Application, t.Name))
		names[t.Name] = true
	}
	for i, ev := range s.Events {
		kinds := 0
		for _, given := range []bool{ev.Broker != "", ev.Leave != nil, ev.Join != nil, ev.Application != "", ev.Slow != nil} {
			if given {
				kinds++
			}
		}
		check(kinds == 1, "events[%d]: give exactly one of broker, leave, join, application and slow", i)
		check(ev.Broker == "" || ev.Broker == "up" || ev.Broker == "down", "events[%d]: broker %q: use up or down", i, ev.Broker)
		for _, n := range []*int{ev.Leave, ev.Join} {
			check(n == nil || *n >= 0 && *n < nodes, "events[%d]: there is no such node", i)
		}
		for _, n := range ev.Slow {
			check(n >= 0 && n < nodes, "events[%d]: slow: there is no node %d: the scenario has %d, numbered from 0", i, n, nodes)
		}
		check(ev.Slow == nil || ev.Factor >= 0.01 && ev.Factor <= 1, "events[%d]: factor %v: use 0.01 to 1, the part of the disks' rate", i, ev.Factor)
		check(ev.Application == "" || names[ev.Application], "events[%d]: the scenario has no application %q", i, ev.Application)
		check(ev.Application == "" || ev.Weight >= 0.001 && ev.Weight <= 1000, "events[%d]: weight %v: use 0.001 to 1000", i, ev.Weight)
	}
	for i, sp := range s.Expect.Spans {
		check(sp.From < sp.To && sp.To <= s.Length, "expect: spans[%d]: from must be before to, and to within the length", i)
		check(sp.Most >= 0 && sp.Most <= 1 && sp.Least >= 0 && sp.Least <= 1, "expect: spans[%d]: most and least: use 0 to 1", i)
	}
	b := s.Expect.Better
	check(b.Local >= 0 && b.Local <= 100 && b.FIFO >= 0 && b.FIFO <= 100, "expect: better: use 0 to 100")
	check(b.Shortest >= 0 && b.Shortest < 1 && b.Sized >= 0 && b.Sized < 1, "expect: better: shortest and sized: use 0 to below 1")
	q := s.Expect.Equal
	check(q.Within >= 0 && q.Within <= 100 && q.Better >= 0 && q.Better <= 100 && q.Estimate >= 0 && q.Estimate <= 1, "expect: equal: use 0 to 100, and 0 to 1 for estimate")
	check(q.To == 0 && q.From == 0 || q.From < q.To && q.To <= s.Length, "expect: equal: from must be before to, and to within the length")
	check(s.Expect.Converged == 0 || s.Expect.Misplaced > 0, "expect: converged: give misplaced too: it is the bound that shares must return to")
	s.checkJobs(check, nodes)
	s.checkExpected(check, nodes)
	check(s.Expect.Misplaced >= 0 && s.Expect.Misplaced <= 1, "expect: misplaced %v: use 0 to 1", s.Expect.Misplaced)
	return errors.Join(errs...)
}
