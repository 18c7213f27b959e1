// Package prometheus tests the alerts and dashboards of deploy/ with a real Prometheus (Debian's), which scrapes a real
// daemon and a real broker. It needs neither Hadoop nor root: an application is a connection that this test makes
// itself.
package prometheus
