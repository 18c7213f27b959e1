// Package remote tests that names claimed by clients on other machines are verified with their
// node's evidence about the processes. The machines are network namespaces.
package remote
