package ipc

import (
	"errors"
	"sync"
)

// ErrBound says that something is refused for a bound on how many there may be.
var ErrBound = errors.New("a bound is reached")

// Owner is who holds something: a user's container, or its process where the kernel names
// no container.
type Owner struct {
	UID       uint32
	Container string
}

// alone is how many times what is still free one user may hold: a user alone gets eight
// ninths, and the first one of a second user is never refused.
const alone = 8

// Quota is a number of things that users and their containers take from. It has no queue
// and takes nothing back, as what is held here (open files) cannot be taken away in the
// middle; so a part is always left for users that come later.
type Quota struct {
	Bound     int // of all
	Container int // of one container

	mu         sync.Mutex
	held       int
	users      map[uint32]int
	containers map[Owner]int
}

// Take takes one, and reports whether there was one for that owner.
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

// Give gives back one that was taken.
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

// Held is how many are taken.
func (q *Quota) Held() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held
}
