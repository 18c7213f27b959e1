// Package queues tests what the broker makes of YARN: who an application is, by the real
// ResourceManager, and bandwidth as a resource by which that admits (IBIS, section 6).
package queues
