package hadoop

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// dfsioDir returns the working folder of a TestDFSIO job.
func (j Job) dfsioDir() string {
	if j.Kind == TestDFSIORead {
		return j.Input
	}
	return j.Output
}

// VerifyTestDFSIO reads the files of a TestDFSIOWrite job below dir, the job's Output, and checks
// every byte and the length of every file.
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
			err = fmt.Errorf("it has %d bytes, and %d were written", n, fileBytes)
		}
		if err != nil {
			return fmt.Errorf("TestDFSIO's %s: %w", path, err)
		}
	}
	return nil
}

// checkDFSIO reads a file to its end and returns its length in bytes. All bytes must be zero:
// TestDFSIO fills a buffer with letters, but then writes a new buffer, which contains only zeros.
func checkDFSIO(r io.Reader) (n int64, err error) {
	buf := make([]byte, 64<<10)
	for {
		got, err := r.Read(buf)
		for i, b := range buf[:got] {
			if b != 0 {
				return n, fmt.Errorf("byte %d is %q, and 0 was written", n+int64(i), b)
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
