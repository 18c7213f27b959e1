// Package failover tests several brokers on a real ZooKeeper of three servers: who leads when
// a leader is killed, stopped or cut off, or ZooKeeper's own leader is killed, that policy is
// changed by one leadership at a time, and that nodes' shares stay as they are meanwhile. What
// a broker sees of ZooKeeper by TLS is tested on one server beside that.
//
// ZooKeeper and the brokers are real processes, each broker in a network namespace of its
// own, so that it can be cut off. Nodes are the real client of brokers with devices that are
// made up: they give each flow exactly its part.
package failover
