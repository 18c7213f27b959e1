// Package parallel tests the file system shared: on real GlusterFS and MooseFS, whose servers are
// network namespaces with mounts of their own.
package parallel
