package node

import (
	"context"
	"path/filepath"
	"strings"
	"sync"

	"penstock/node/identity"
	"penstock/wire"
)

// writtenBlocks are the blocks that DataNodes of this machine write. A DataNode forwards a block to the next one of its
// pipeline, whose daemon knows only that a DataNode has the connection. So it asks for the flow that was verified
// for the same block here.
type writtenBlocks struct {
	mu    sync.Mutex
	of    map[blockKey]*writtenBlock
	begun int64 // number of the last one
}

// blockKey is a block that a DataNode writes.
type blockKey struct {
	pid   int
	block string // the name of its file
}

// writtenBlock is the result of checking the claim of a block's writer. Its methods accept nil.
type writtenBlock struct {
	all        *writtenBlocks
	key        blockKey
	number     int64         // above 0, different for each one
	settled    chan struct{} // closed once the claim is checked
	flow, user string        // "" if nothing is certain
}

// blockOf returns the name of the block's file that a DataNode writes; "" for all other operations.
func (r *registration) blockOf(m wire.Open) string {
	name := filepath.Base(m.Path)
	if r.role != wire.RoleDataNode || m.Direction != wire.Write || m.Kind != wire.Persistent || m.Client == wire.Own || !strings.HasPrefix(name, "blk_") {
		return ""
	}
	return name
}

// begin adds a block; the result is nil if there is none. end must be called.
func (b *writtenBlocks) begin(pid int, block string) *writtenBlock {
	if block == "" {
		return nil
	}
	w := &writtenBlock{all: b, key: blockKey{pid, block}, settled: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[blockKey]*writtenBlock{}
	}
	b.begun++
	w.number = b.begun
	if b.of[w.key] == nil { // several DataNodes may share a process: then the first of the pipeline counts
		b.of[w.key] = w
	}
	return w
}

// settle records the verdict on the claim. It is called at most once.
func (w *writtenBlock) settle(mode identity.Mode, claimed string, v identity.Verdict) {
	if w == nil {
		return
	}
	if v.State != identity.Unknown {
		w.flow = mode.Flow(claimed, v)
		w.user = turnOf(w.flow, v.User)
	}
	close(w.settled)
}

// end removes the block, which is no longer written.
func (w *writtenBlock) end() {
	if w == nil {
		return
	}
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	if w.all.of[w.key] == w {
		delete(w.all.of, w.key)
	}
}

// id returns the block's number; 0 if there is no block.
func (w *writtenBlock) id() int64 {
	if w == nil {
		return 0
	}
	return w.number
}

// verified waits for the verdict on the claim of a block's writer until ctx ends, and returns the block's flow and user;
// "" if they are not verified. If the block has the number of the asker, nothing is verified, and nothing is waited for: a
// DataNode that is its own client, as for WebHDFS, would wait for itself.
func (b *writtenBlocks) verified(ctx context.Context, pid int, block string, asker int64) (flow, user string) {
	b.mu.Lock()
	w := b.of[blockKey{pid, block}]
	b.mu.Unlock()
	if w == nil || w.number == asker {
		return "", ""
	}
	select {
	case <-w.settled:
		return w.flow, w.user
	case <-ctx.Done():
		return "", ""
	}
}
