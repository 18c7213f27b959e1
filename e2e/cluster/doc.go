// Package cluster tests shares of a whole cluster, with a broker. Each DataNode has its own disk
// and node daemon, as if it were on another machine.
package cluster
