// Package remote tests how names that clients on other machines claim are verified: the node on the
// client's machine gives evidence about the client's process. The machines are network namespaces.
package remote
