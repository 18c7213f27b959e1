package device

// Parts replace weights, at every level of the queue tree, on their scale: among the members of
// one queue who has no part fits in with his own weight. Both nil: none are in force.
type Parts struct {
	Flows  map[string]float64 // of a flow, in its queue
	Queues map[string]float64 // of a queue, in its parent; by its path from the root, "/a/b"
}
