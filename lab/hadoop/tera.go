package hadoop

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"math/rand/v2"
	"strings"
)

// RowBytes is the length of a row of TeraGen, TeraSort and TeraValidate.
const RowBytes = 100

// Rows describes input for TeraSort or TeraValidate that this package writes itself. TeraGen would
// need a job to write such rows, and sorted rows would need a whole TeraSort as well.
type Rows struct {
	Seed   uint64
	Rows   int64
	Files  int  // default 2; file i lies on DataNode i mod n, as one block
	Sorted bool // keys ascend within a file and from file to file, as TeraValidate requires
}

// Checksum128 is TeraSort's order-independent checksum: the sum of the CRC-32 of every row, in 128
// bits.
type Checksum128 struct{ High, Low uint64 }

func (s *Checksum128) add(row []byte) {
	s.Plus(Checksum128{Low: uint64(crc32.ChecksumIEEE(row))})
}

// Plus adds the checksum of other rows.
func (s *Checksum128) Plus(other Checksum128) {
	low, carry := bits.Add64(s.Low, other.Low, 0)
	s.Low, s.High = low, s.High+other.High+carry
}

// String returns the checksum in the form in which TeraValidate reports it: hexadecimal without
// leading zeros.
func (s Checksum128) String() string {
	if s.High != 0 {
		return fmt.Sprintf("%x%016x", s.High, s.Low)
	}
	return fmt.Sprintf("%x", s.Low)
}

// rowReader makes rows in TeraGen's layout: 10 bytes of key, 2 of break, 32 hexadecimal digits of
// row number, 4 of break, 48 of filler, 4 of break. The keys differ from TeraGen's.
type rowReader struct {
	rand   *rand.PCG
	next   uint64 // row number
	end    uint64
	total  uint64
	sorted bool
	sum    Checksum128
	buf    []byte
}

// newRowReader returns a reader of the rows of one file. from is the number of the file's first
// row, to is one more than the number of its last row, and total is the number of rows of all
// files.
func newRowReader(seed uint64, file int, from, to, total uint64, sorted bool) *rowReader {
	return &rowReader{rand: rand.NewPCG(seed, uint64(file)), next: from, end: to, total: total, sorted: sorted}
}

func (r *rowReader) Read(p []byte) (int, error) {
	if len(r.buf) == 0 {
		if r.next == r.end {
			return 0, io.EOF
		}
		b := make([]byte, 0, 512*RowBytes)
		for len(b) < cap(b) && r.next < r.end {
			b = r.row(b)
			r.sum.add(b[len(b)-RowBytes:])
			r.next++
		}
		r.buf = b
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (r *rowReader) row(b []byte) []byte {
	const digits = "0123456789ABCDEF"
	random := r.rand.Uint64()
	high := random
	if r.sorted {
		// Keys ascend, are spread over the whole key space, and are the same for the same row
		// number.
		high = r.next * (^uint64(0) / r.total)
	}
	b = binary.BigEndian.AppendUint64(b, high)
	b = binary.BigEndian.AppendUint16(b, uint16(random))
	b = append(b, 0x00, 0x11)
	for shift := 124; shift >= 0; shift -= 4 {
		d := uint64(0)
		if shift < 64 {
			d = r.next >> shift & 15
		}
		b = append(b, digits[d])
	}
	b = append(b, 0x88, 0x99, 0xAA, 0xBB)
	for shift := 44; shift >= 0; shift -= 4 {
		d := digits[random>>shift&15]
		b = append(b, d, d, d, d)
	}
	return append(b, 0xCC, 0xDD, 0xEE, 0xFF)
}

// WriteRows writes rows below dir and returns their checksum.
func (c *Cluster) WriteRows(ctx context.Context, dir string, spec Rows) (Checksum128, error) {
	spec.Files = cmp.Or(spec.Files, 2)
	var total Checksum128
	if spec.Files < 1 || spec.Rows < int64(spec.Files) {
		return total, fmt.Errorf("hadoop: %d rows in %d files: every file needs at least one row", spec.Rows, spec.Files)
	}
	for i := range spec.Files {
		from := spec.Rows * int64(i) / int64(spec.Files)
		to := spec.Rows * int64(i+1) / int64(spec.Files)
		var last *rowReader
		err := c.FS().CreateOn(ctx, fmt.Sprintf("%s/part-r-%05d", dir, i), c.DataNodeAddress(i%len(c.cfg.DataNodes)), (to-from)*RowBytes, func() io.Reader {
			last = newRowReader(spec.Seed, i, uint64(from), uint64(to), uint64(spec.Rows), spec.Sorted)
			return last
		})
		if err != nil {
			return total, err
		}
		total.Plus(last.sum)
	}
	return total, nil
}

// WriteRowFile writes a file of TeraSort's input to w and returns the checksum of its rows. The rows depend on the seed.
func WriteRowFile(w io.Writer, seed uint64, rows int64) (Checksum128, error) {
	r := newRowReader(seed, 0, 0, uint64(rows), uint64(rows), false)
	_, err := io.Copy(w, r)
	return r.sum, err
}

// VerifyRows reads a job's committed output of rows. It checks the number of rows, each row's
// layout and, with inOrder, that the row numbers go up one by one from 0 over all files, as in
// TeraGen's output. It returns the rows' checksum.
func (c *Cluster) VerifyRows(ctx context.Context, dir string, rows int64, inOrder bool) (Checksum128, error) {
	check := RowCheck{InOrder: inOrder}
	err := c.eachPart(ctx, dir, func(path string, r io.Reader) error {
		if err := check.Read(r); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	if err == nil && check.Rows != rows {
		err = fmt.Errorf("%s has %d rows, expected %d", dir, check.Rows, rows)
	}
	return check.Sum, err
}

// RowCheck checks rows that come from one reader after the other.
type RowCheck struct {
	InOrder bool // the row numbers go up one by one from 0
	Sorted  bool // the keys do not go down, as after TeraSort
	Rows    int64
	Sum     Checksum128

	last []byte
}

// Read reads the reader to its end. An error describes the first row that is wrong.
func (c *RowCheck) Read(r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<20)
	row := make([]byte, RowBytes)
	for {
		if _, err := io.ReadFull(in, row); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := checkRow(row, uint64(c.Rows), c.InOrder); err != nil {
			return err
		}
		const key = 10
		if c.Sorted && bytes.Compare(c.last, row[:key]) > 0 {
			return fmt.Errorf("row %d has the key %x, the one before it %x", c.Rows, row[:key], c.last)
		}
		c.last = append(c.last[:0], row[:key]...)
		c.Sum.add(row)
		c.Rows++
	}
}

func checkRow(row []byte, number uint64, inOrder bool) error {
	if row[10] != 0x00 || row[11] != 0x11 || row[96] != 0xCC || row[99] != 0xFF {
		return fmt.Errorf("row %d is damaged: %x", number, row)
	}
	if !inOrder {
		return nil
	}
	var id [16]byte
	if _, err := hex.Decode(id[:], row[12:44]); err != nil || binary.BigEndian.Uint64(id[8:]) != number {
		return fmt.Errorf("row %d carries number %q", number, row[12:44])
	}
	return nil
}

// VerifyTeraValidate reads TeraValidate's report. All rows are present and in order if the report
// contains only the checksum and the checksum is the expected one.
func (c *Cluster) VerifyTeraValidate(ctx context.Context, output string, want Checksum128) error {
	return c.eachPart(ctx, output, func(path string, r io.Reader) error {
		report, err := io.ReadAll(io.LimitReader(r, 64<<10))
		if err != nil {
			return err
		}
		return checkTeraReport(string(report), want)
	})
}

func checkTeraReport(report string, want Checksum128) error {
	got, ok := strings.CutPrefix(strings.TrimSpace(report), "checksum\t")
	if !ok {
		return fmt.Errorf("TeraValidate found errors:\n%.2000s", report)
	}
	if got != want.String() {
		return fmt.Errorf("TeraValidate's checksum is %s, the input's is %s", got, want)
	}
	return nil
}
