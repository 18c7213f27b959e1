// Package remote holds names of clients on other machines, network namespaces of this one,
// against what the node there knows of their processes.
package remote
