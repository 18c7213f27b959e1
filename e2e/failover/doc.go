// Package failover tests several brokers with a real ZooKeeper of three servers. A leader is
// killed, stopped or cut off, or ZooKeeper's own leader is killed. Another broker must lead, only
// one leadership at a time may change policy, and the nodes' shares must stay the same meanwhile.
// The connection of a broker to ZooKeeper with TLS is tested on a separate server.
//
// ZooKeeper and the brokers are real processes, each broker in its own network namespace, so that
// it can be cut off. Each node is the production code of a broker's client, with fake devices that
// give each flow exactly its part.
package failover
