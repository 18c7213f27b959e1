package policy

// Outcome is an application's grant, and its entitlement among the applications at work.
type Outcome struct {
	Grant
	Among float64 // weight among all applications at work, as returned by Weights
	Due   float64 // entitlement: part of all service, 0 to 1
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
	for i := range all {
		all[i].Due = all[i].Among / sum
	}
	return all
}
