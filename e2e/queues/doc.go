// Package queues tests what the broker makes of YARN: who an application is, by a real pair of
// ResourceManagers, also when the active one is killed, and bandwidth as a resource by which
// they admit (IBIS, section 6).
package queues
