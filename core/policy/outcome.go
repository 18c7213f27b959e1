package policy

// Outcome is what an application gets where some others are at work beside it.
type Outcome struct {
	Grant
	Among float64 // the weight among all at work, as Weights has it
	Due   float64 // the part of what they all get, 0 to 1
}

// Outcomes says what each would get if these, and no others, were at work.
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
