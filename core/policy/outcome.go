package policy

// Outcome is an application's grant, and its entitlement among the applications at work.
type Outcome struct {
	Grant
	Among float64 // weight among all applications at work, as returned by Weights
	// Due is the entitlement: the part of all service, 0 to 1. In an ordered queue it is the mean over the ranks, because what the
	// application gets depends on its remaining work: from Least, that of the last rank, to Most, that of the first.
	Due, Least, Most float64
}

// Outcomes returns the outcome of each application if exactly these applications are at work.
func (p *Policy) Outcomes(atWork []Facts) []Outcome {
	grants := make([]Grant, len(atWork))
	for i, f := range atWork {
		grants[i] = p.Grant(f)
	}
	all := make([]Outcome, len(atWork))
	sum := 0.0
	for i, w := range p.Weights(grants) {
		all[i] = Outcome{Grant: grants[i], Among: w}
		sum += w
	}
	members := map[string][]int{} // of the ordered queues
	var ordered []string
	for i := range all {
		o := &all[i]
		o.Due = o.Among / sum
		o.Least, o.Most = o.Due, o.Due
		if _, is := p.OrderOf(o.Grant); is {
			if len(members[o.Queue]) == 0 {
				ordered = append(ordered, o.Queue)
			}
			members[o.Queue] = append(members[o.Queue], i)
		}
	}
	for _, queue := range ordered {
		in, due := members[queue], 0.0
		for _, i := range in {
			due += all[i].Due
		}
		slices, _ := p.OrderOf(all[in[0]].Grant)
		parts := slices.Parts(len(in))
		for _, i := range in {
			all[i].Due, all[i].Least, all[i].Most = due/float64(len(in)), due*parts[len(in)-1], due*parts[0]
		}
	}
	return all
}
