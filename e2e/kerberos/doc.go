// Package kerberos tests Penstock on a secured cluster: a real Kerberos server, HDFS with SASL and
// block tokens, and YARN whose web address is https and asks for a ticket. The broker asks it with a keytab.
//
// Two things of a secured cluster cannot run here, because libhadoop and the container executor are
// not published as artifacts: jobs of MapReduce with reduces, and containers with the user ids of their users.
package kerberos
