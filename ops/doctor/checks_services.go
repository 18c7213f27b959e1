package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// checkServices reports the named services of the weights file, and which of their rules trust a claim.
func checkServices(f *Facts) (all []Result) {
	if f.Status == nil {
		return nil
	}
	services, mode := f.Status.Identity.Services, f.Status.Identity.Mode
	if len(services) == 0 {
		return good("none in the weights file: clients outside of containers share the flow clients, and take turns by user")
	}
	if mode == "trust" {
		return bad(Warn, fmt.Sprintf("%d rules, but identity has mode trust", len(services)), "processes are not examined, so no rule applies",
			"set mode: verify below identity in the daemon's settings")
	}
	var flows []string
	for _, s := range services {
		if !slices.Contains(flows, s.Flow) {
			flows = append(flows, s.Flow)
		}
		switch {
		case s.User != "*":
		case s.Program == "" && mode == "strict":
			all = append(all, bad(Warn, fmt.Sprintf("%s: only the client's name %q counts", s.Flow, s.Client), "identity has mode strict, in which a name alone proves nothing: the rule has no effect",
				"give the service's user")...)
		case s.Program == "":
			all = append(all, bad(Warn, fmt.Sprintf("%s: only the client's name %q counts", s.Flow, s.Client), "every client that gives itself this name gets the service's weight", "give the service's user as well")...)
		default:
			all = append(all, bad(Warn, fmt.Sprintf("%s: the program %q of any user", s.Flow, s.Program), "every user can start a process that looks like this program, and gets the service's weight", "give the service's user as well")...)
		}
	}
	return append(all, good("%s", strings.Join(flows, ", "))...)
}
