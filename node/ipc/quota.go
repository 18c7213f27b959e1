package ipc

import (
	"errors"
	"sync"
)

// ErrBound is the error of a request that is refused because a maximum number is reached.
var ErrBound = errors.New("a bound is reached")

// Owner is a user's container that uses a quota, or a process if the kernel names no container.
type Owner struct {
	UID       uint32
	Container string
}

// alone limits the resources of one user to this multiple of the free remainder. A single user can
// hold eight ninths of all, and the first request of a second user is never refused.
const alone = 8

// Quota is a number of resources that users and their containers share. It has no queue and
// cannot withdraw a resource in use, such as an open file. So a part is always left for users
// that come later.
type Quota struct {
	Bound     int // of all
	Container int // of one container

	mu         sync.Mutex
	held       int
	users      map[uint32]int
	containers map[Owner]int
}

// Take takes a resource. It reports whether one was available for the owner.
func (q *Quota) Take(o Owner) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	free := q.Bound - q.held - 1
	if free < 0 || q.containers[o] >= q.Container || q.users[o.UID]+1 > alone*max(free, 1) {
		return false
	}
	if q.users == nil {
		q.users, q.containers = map[uint32]int{}, map[Owner]int{}
	}
	q.held++
	q.users[o.UID]++
	q.containers[o]++
	return true
}

// Give returns a resource that was taken.
func (q *Quota) Give(o Owner) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held--
	if q.users[o.UID]--; q.users[o.UID] == 0 {
		delete(q.users, o.UID)
	}
	if q.containers[o]--; q.containers[o] == 0 {
		delete(q.containers, o)
	}
}

// Held returns the number of resources that are taken.
func (q *Quota) Held() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held
}
