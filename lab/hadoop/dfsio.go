package hadoop

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// dfsioDir returns the folder in which a TestDFSIO job works.
func (j Job) dfsioDir() string {
	if j.Kind == TestDFSIORead {
		return j.Input
	}
	return j.Output
}

// VerifyTestDFSIO reads the files of a TestDFSIOWrite below dir, its Output, and checks every byte
// and every file's length.
func (c *Cluster) VerifyTestDFSIO(ctx context.Context, dir string, files int, fileBytes int64) error {
	for i := range files {
		path := fmt.Sprintf("%s/io_data/test_io_%d", dir, i)
		r, err := c.FS().Open(ctx, path)
		if err != nil {
			return err
		}
		n, err := checkDFSIO(r)
		r.Close()
		if err == nil && n != fileBytes {
			err = fmt.Errorf("%d bytes, written were %d", n, fileBytes)
		}
		if err != nil {
			return fmt.Errorf("TestDFSIO's %s: %w", path, err)
		}
	}
	return nil
}

// checkDFSIO reads a file to its end and returns its length in bytes. All bytes must be zero:
// TestDFSIO fills its buffer with letters, but then writes a new one.
func checkDFSIO(r io.Reader) (n int64, err error) {
	buf := make([]byte, 64<<10)
	for {
		got, err := r.Read(buf)
		for i, b := range buf[:got] {
			if b != 0 {
				return n, fmt.Errorf("byte %d is %q, written was 0", n+int64(i), b)
			}
		}
		n += int64(got)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
