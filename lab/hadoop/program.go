package hadoop

import (
	"strings"

	"penstock/lab/process"
)

// Program is a Java program of another project that uses the cluster, such as a server of HBase.
type Program struct {
	Name      string   // of its log
	HeapMB    int      // MiB; default 256
	ClassPath []string // before the configuration of clients and Hadoop's jars
	Options   []string // of the JVM, in addition to those of every JVM of the cluster
	User      string   // on a secured cluster, the user that it logs in as; default: the cluster's own
	Class     string
	Args      []string
}

// Start starts a program on the machine of the masters. Stop of the cluster does not wait for it, so the caller must stop it
// first.
func (c *Cluster) Start(p Program) (*process.Process, error) {
	path := strings.Join(append(p.ClassPath, c.confDir("client"), c.cfg.jars(":")), ":")
	return c.java(jvm{name: p.Name, conf: "client", heapMB: p.HeapMB, opts: p.Options, env: append(c.cfg.userEnv(p.User), "CLASSPATH="+path), class: p.Class, args: p.Args})
}
