// Package cluster tests what makes many nodes one: shares of the whole, by a broker. Each
// DataNode has a disk and a node daemon of its own, as if it were another machine.
package cluster
