package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"penstock/lab/client"
	"penstock/lab/experiment"
)

// transfer is a file with known bytes.
type transfer struct {
	app   int
	path  string
	bytes int64
	seed  int64
}

const fileBlock = 4 << 20 // bytes; most files have several blocks

func (f transfer) put(ctx context.Context, jvm *client.JVM) error {
	return f.move(ctx, jvm, "put", fmt.Sprintf("block=%d replication=%d", fileBlock, Nodes))
}

func (f transfer) get(ctx context.Context, jvm *client.JVM) error { return f.move(ctx, jvm, "get", "") }

// move puts or gets the file and compares the checksum of the moved bytes. In a get, the client
// also compares every byte.
func (f transfer) move(ctx context.Context, jvm *client.JVM, operation, more string) error {
	args := fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d %s", f.path, client.Attempt(f.app), f.bytes, f.seed, more)
	sum, err := jvm.Ask(ctx, operation, strings.TrimSpace(args))
	if err != nil && strings.Contains(err.Error(), "the data differ") {
		err = fmt.Errorf("%w: %w", errDiffers, err)
	}
	if err == nil && sum != client.Sum(f.seed, f.bytes) {
		err = fmt.Errorf("%w: the SHA-256 is %s", errDiffers, sum)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", operation, f.path, err)
	}
	return nil
}

// errDiffers reports that the data read differ from the data written, which is a finding.
var errDiffers = errors.New("the data differ from what was written")

// files writes files, reads them back and keeps some of them, during the campaign.
type files struct {
	m      *machine
	report func(finding string)
	kept   []transfer
	done   int // written and read back
	again  int // attempts that had to be repeated
	bytes  int64
}

const (
	filesKept    = 12
	fileAttempts = 5
	fileBytesMin = 2 << 20
	fileBytesMax = 12 << 20
)

// run writes and reads file after file. When stop is closed, it completes the current file and
// returns.
func (f *files) run(ctx context.Context, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-time.After(300 * time.Millisecond):
		}
		file := transfer{app: probeApplication + 1 + n%8, path: fmt.Sprintf("/files/%d", n), seed: int64(1000 + n),
			bytes: fileBytesMin + int64(n)*1_234_568%(fileBytesMax-fileBytesMin)}
		file.bytes -= file.bytes % 8
		if !f.persist(ctx, file.put) || !f.persist(ctx, file.get) {
			continue
		}
		f.done, f.bytes = f.done+1, f.bytes+file.bytes
		if f.kept = append(f.kept, file); len(f.kept) > filesKept {
			oldest := f.kept[0]
			f.kept = f.kept[1:]
			f.persist(ctx, oldest.get)
			f.persist(ctx, func(ctx context.Context, _ *client.JVM) error { return f.m.Hadoop.FS().Remove(ctx, oldest.path) })
		}
	}
}

// persist repeats an operation until it succeeds, as Hadoop repeats a task, because a client fails
// if no DataNode is available at the moment. It never repeats an operation that returned
// errDiffers.
func (f *files) persist(ctx context.Context, do func(context.Context, *client.JVM) error) bool {
	for attempt := 1; ; attempt++ {
		err := do(ctx, f.m.Clients)
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		if errors.Is(err, errDiffers) || attempt == fileAttempts {
			f.report(err.Error())
			return false
		}
		f.again++
		if experiment.Pause(ctx, time.Second) != nil {
			return false
		}
	}
}

// checkKept reads every kept file once more, and then compares every byte of each of its replicas
// on the disks.
func (f *files) checkKept(ctx context.Context) error {
	var errs []error
	for _, file := range f.kept {
		errs = append(errs, file.get(ctx, f.m.Clients), f.checkReplicas(ctx, file))
	}
	return errors.Join(errs...)
}

func (f *files) checkReplicas(ctx context.Context, file transfer) error {
	answer, err := f.m.Clients.Ask(ctx, "blocks", "path="+file.path)
	if err != nil {
		return err
	}
	offset := int64(0)
	for _, b := range strings.Split(answer, ";") {
		parts := strings.SplitN(b, ":", 3) // name, length, addresses
		if len(parts) < 3 {
			return fmt.Errorf("blocks of %s: %q", file.path, answer)
		}
		length, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			return fmt.Errorf("blocks of %s: %q: %w", file.path, answer, err)
		}
		want := make([]byte, length)
		client.Fill(want, file.seed, offset)
		for i := range Nodes {
			if err := compareReplica(f.m.dataDir(i), parts[0], want); err != nil {
				return fmt.Errorf("%s on DataNode %d: %w", file.path, i, err)
			}
		}
		offset += length
	}
	if offset != file.bytes {
		return fmt.Errorf("%s: %w: the blocks have %d bytes, but %d were written", file.path, errDiffers, offset, file.bytes)
	}
	return nil
}

// compareReplica compares the file of a block below a data directory with the wanted bytes. There
// must be exactly one such file.
func compareReplica(dir, block string, want []byte) error {
	found := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		if err != nil || !e.Type().IsRegular() || e.Name() != block {
			return err
		}
		found++
		got, err := os.ReadFile(path)
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%w: replica %s", errDiffers, block)
		}
		return err
	})
	if err == nil && found != 1 {
		err = fmt.Errorf("%d files of replica %s, want 1", found, block)
	}
	return err
}
