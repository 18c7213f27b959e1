package isolation

import (
	"fmt"
	"strings"
)

// plainName returns a phase's name for a reader who does not know Penstock's terms, unique among
// all phases.
func (s Setup) plainName(phase string, all []string) string {
	for _, f := range families {
		if f.has(phase) {
			return fmt.Sprintf(f.plain, strings.TrimPrefix(phase, f.prefix))
		}
	}
	if kernel, ok := strings.CutPrefix(phase, nativePrefix); ok {
		if natives(all) == 1 {
			return "Hadoop today"
		}
		return "Hadoop today, " + kernel
	}
	switch phase {
	case fullSpeed.Name:
		return "alone, disks without a limit"
	case "floor":
		return "CPU contention only"
	case "sfqd2":
		return "with Penstock"
	case aggressorAlone:
		return s.aggressor().title() + " alone"
	}
	return phase
}

func natives(phases []string) (n int) {
	for _, name := range phases {
		if strings.HasPrefix(name, nativePrefix) {
			n++
		}
	}
	return n
}

func (res Result) names() (all []string) {
	for _, f := range res.Phases {
		all = append(all, f.Name)
	}
	return all
}

func (res Result) plainName(phase string) string { return res.Setup.plainName(phase, res.names()) }

func (res Result) phase(name string) *Figure {
	for i := range res.Phases {
		if res.Phases[i].Name == name {
			return &res.Phases[i]
		}
	}
	return nil
}

// Headline returns the result as one sentence: the protected job's run time with Penstock instead
// of natively, and the effect on the disks' throughput. It is empty without both phases.
func (res Result) Headline() string {
	with, native := res.phase("sfqd2"), res.phase(res.Native)
	if with == nil || native == nil {
		return ""
	}
	verdict := "Protected"
	floor := res.phase("floor")
	switch ratio := with.RuntimeS / native.RuntimeS; {
	case ratio > 1+even:
		verdict = "Slower"
	case ratio > 1/(1+even):
		verdict = "No difference"
	case floor != nil && with.RuntimeS-floor.RuntimeS > (native.RuntimeS-floor.RuntimeS)/2:
		verdict = "Faster, but not protected" // most of the cost of contention for disks remains
	}
	text := fmt.Sprintf("%s: %.0f s instead of %.0f s", verdict, with.RuntimeS, native.RuntimeS)
	if d := with.DeviceVsNative; d != nil {
		text += "; " + busyness(*d)
	}
	return text
}

// busyness returns a phrase that compares the disks' throughput with the native throughput.
func busyness(ratio float64) string {
	switch {
	case ratio > 1+even:
		return fmt.Sprintf("the disks move %.0f %% more", (ratio-1)*100)
	case ratio < 1/(1+even):
		return fmt.Sprintf("the disks move %.0f %% less", (1-ratio)*100)
	}
	return "the disks just as busy"
}
