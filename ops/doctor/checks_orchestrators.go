package doctor

import (
	"fmt"
	"time"
)

// checkOrchestrators reports whether the kubelet and the Mesos agent answer the daemon, if its settings name them.
func checkOrchestrators(f *Facts) (all []Result) {
	if f.Status == nil {
		return nil
	}
	if len(f.Status.Orchestrators) == 0 {
		return good("none in the settings: containers of Kubernetes and Mesos are named by their ids")
	}
	for _, o := range f.Status.Orchestrators {
		what := fmt.Sprintf("%s, %s", o.Kind, o.URL)
		if p := o.DevicePlugin; p != nil {
			switch {
			case p.Error != "":
				all = append(all, bad(Warn, p.Resource+" is not offered: "+p.Error, "no pod that requests it starts on this machine", "check that a kubelet runs, and that `device_plugin` names its folder; the daemon tries again within a minute")...)
			case !p.Registered.IsZero() && p.Watched == 0:
				all = append(all, bad(Warn, p.Resource+" is registered, but the kubelet does not follow it", "no pod that requests it starts on this machine", "read the kubelet's log; it refuses names that it knows already")...)
			}
		}
		switch {
		case o.Error != "" && o.Answered.IsZero():
			all = append(all, bad(Warn, what+" has never answered: "+o.Error, "its containers are named by their ids, and their I/O counts for the applications that they claim",
				`correct "orchestrators" in the daemon's settings and restart the daemon, or mend the server`)...)
		case o.Error != "":
			all = append(all, bad(Warn, fmt.Sprintf("%s has not answered since %s: %s", what, o.Answered.Format(time.RFC3339), o.Error),
				"its last answer counts, except for addresses of pods: new containers are named by their ids", "mend the server, or replace the token; the daemon asks again within a minute")...)
		case o.LeftOut > 0:
			all = append(all, bad(Warn, fmt.Sprintf("%s: %d containers are beyond the bound of %d", what, o.LeftOut, o.Containers), "these are named by their ids", "with the API server, let the URL select the pods of this node")...)
		case o.Skipped > 0:
			all = append(all, bad(Warn, fmt.Sprintf("%s: %d entries have invalid names, or a UID that several pods name", what, o.Skipped), "these containers are named by their ids", "is it an orchestrator of another version? report it")...)
		default:
			all = append(all, good("%s: %d containers of %d applications", what, o.Containers, len(o.Top)+o.LeftOff)...)
		}
	}
	return all
}
