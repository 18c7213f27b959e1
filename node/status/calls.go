package status

import "penstock/node/kernel"

// MissingCalls returns the system calls that are missing in this process. It is never nil.
func MissingCalls() []MissingCall {
	calls := []MissingCall{}
	for _, c := range kernel.Calls() {
		if err := c.Missing(); err != nil {
			calls = append(calls, MissingCall{Name: c.String(), Why: err.Error()})
		}
	}
	return calls
}
