package orchestrators

import (
	"cmp"
	"slices"
)

// sum adds up containers by application. The result is sorted: applications that request most come first.
func sum(containers []Container) []Application {
	at := map[string]int{}
	var all []Application
	for _, c := range containers {
		i, known := at[c.Application]
		if !known {
			i = len(all)
			at[c.Application] = i
			all = append(all, Application{Name: c.Application, Title: c.Title, Kind: c.Kind})
		}
		a := &all[i]
		a.Flow = a.Flow || c.Flow
		a.Containers, a.Bandwidth, a.CPUs, a.Memory = a.Containers+1, a.Bandwidth+c.Bandwidth, a.CPUs+c.CPUs, a.Memory+c.Memory
		a.Title = max(a.Title, c.Title) // the same whatever the order
	}
	slices.SortFunc(all, func(a, b Application) int {
		return cmp.Or(cmp.Compare(b.Bandwidth, a.Bandwidth), cmp.Compare(b.Containers, a.Containers), cmp.Compare(a.Name, b.Name))
	})
	return all
}
