// Package queues tests the broker with YARN: facts about applications from a real pair of
// ResourceManagers, also when the active one is killed, and bandwidth as a resource for admission
// (IBIS, section 6).
package queues
