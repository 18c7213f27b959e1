// Package storage runs real parallel file systems, GlusterFS and MooseFS, on several machines of
// package netns, for tests of Hadoop on them.
//
// Their programs expect to be alone on a machine: they have fixed ports, folders below /run and
// /var/lib, and libraries at fixed paths. So a Host is a machine with mounts and a name of its own.
// It sees the system's /usr and /etc with the unpacked packages beside their files (overlayfs), and has its own /run, /var/lib
// and /var/log. Other programs, such as a NodeManager, run on the same host and see its mount of
// the file system. Nothing is installed, and the system's own mounts do not change.
//
// Folders that a host uses (bricks, mount points) have the same path on it as outside.
package storage
