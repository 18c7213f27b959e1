package node

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"penstock/lab/client"
)

// writers are tasks of one application that write one file after another, until they are ended.
type writers struct {
	flow string
	stop func()
}

// write starts count writers of an application. Their files are removed with the test.
func write(ctx context.Context, t *testing.T, number, count, replication int) *writers {
	t.Helper()
	dir := fmt.Sprintf("/%s/writers", t.Name())
	ending := make(chan struct{})
	var group sync.WaitGroup
	for n := range count {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ending:
					return
				default:
				}
				args := fmt.Sprintf("path=%s/%d-%d attempt=%s bytes=%d block=%d replication=%d", dir, n, i, client.Attempt(number), 2*block, block, replication)
				if err := do(ctx, "put", args); err != nil {
					t.Errorf("writer %d, file %d: %v", n, i, err)
					return
				}
			}
		})
	}
	w := &writers{flow: client.Application(number)}
	w.stop = sync.OnceFunc(func() {
		close(ending)
		group.Wait()
	})
	shared.Remove(t, dir)
	t.Cleanup(w.stop)
	return w
}

// do makes a client carry out an operation.
func do(ctx context.Context, operation, args string) error {
	return doIn(ctx, shared.Clients, operation, args)
}

// doIn is do with a client in another process than the usual one.
func doIn(ctx context.Context, clients *client.JVM, operation, args string) error {
	return clients.Run(ctx, operation, args)
}
