package disk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The request log contains the disk's requests and their costs, written by the disk itself.
// Penstock's own figures are checked against this log, so its format is simple: a header and
// records of a fixed size, big endian.
//
//	header := "PSTKDISK" | version u32 (=1) | record size u32 (=40)
//	          | monotonic ns i64 | wall clock ns since 1970 i64     (the same moment)
//	record := submitted ns i64 | ended ns i64 | service ns i64
//	          | offset u64 | length u32 | op u8 | 3 zero bytes
//
// Times are CLOCK_MONOTONIC, which is the same for all processes of a machine. While the model is
// on, records are in the order in which the requests ended. Requests that end because the model is
// turned off may be in another order.

// Op is the operation of a request.
type Op byte

const (
	Read    Op = 'R'
	Write   Op = 'W'
	Discard Op = 'D' // costs the disk nothing; frees the backing memory
	Lost    Op = 'L' // Length requests were not logged: the log had reached its bound, or was written too slowly
)

// Record is one request.
type Record struct {
	Submitted int64 // ns, CLOCK_MONOTONIC: when the disk received it
	Ended     int64 // ns: when the disk finished it, by the model
	Service   int64 // ns of the disk's time spent on the request: seek and transfer; with channels, the request's fraction of the time of all channels
	Offset    int64 // bytes from the start of the device
	Length    int64 // bytes, at most 4 GiB - 1
	Op        Op
}

// LogHeader is the header of a log.
type LogHeader struct {
	MonotonicNs, WallNs int64 // the same moment on both clocks
}

const (
	logMagic      = "PSTKDISK"
	logVersion    = 1
	logHeaderSize = 32
	recordSize    = 40
)

// ErrLog means that a file is not a request log of this version.
var ErrLog = errors.New("not a request log of this version")

func appendHeader(b []byte, h LogHeader) []byte {
	b = append(b, logMagic...)
	b = binary.BigEndian.AppendUint32(b, logVersion)
	b = binary.BigEndian.AppendUint32(b, recordSize)
	b = binary.BigEndian.AppendUint64(b, uint64(h.MonotonicNs))
	return binary.BigEndian.AppendUint64(b, uint64(h.WallNs))
}

func decodeHeader(b []byte) (LogHeader, error) {
	if len(b) < logHeaderSize || string(b[:8]) != logMagic ||
		binary.BigEndian.Uint32(b[8:]) != logVersion || binary.BigEndian.Uint32(b[12:]) != recordSize {
		return LogHeader{}, ErrLog
	}
	return LogHeader{
		MonotonicNs: int64(binary.BigEndian.Uint64(b[16:])),
		WallNs:      int64(binary.BigEndian.Uint64(b[24:])),
	}, nil
}

func appendRecord(b []byte, r Record) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(r.Submitted))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Ended))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Service))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Offset))
	b = binary.BigEndian.AppendUint32(b, uint32(r.Length))
	return append(b, byte(r.Op), 0, 0, 0)
}

func decodeRecord(b []byte) (Record, error) {
	r := Record{
		Submitted: int64(binary.BigEndian.Uint64(b)),
		Ended:     int64(binary.BigEndian.Uint64(b[8:])),
		Service:   int64(binary.BigEndian.Uint64(b[16:])),
		Offset:    int64(binary.BigEndian.Uint64(b[24:])),
		Length:    int64(binary.BigEndian.Uint32(b[32:])),
		Op:        Op(b[36]),
	}
	switch {
	case r.Op != Read && r.Op != Write && r.Op != Discard && r.Op != Lost:
		return Record{}, fmt.Errorf("%w: unknown operation %q", ErrLog, r.Op)
	case b[37] != 0 || b[38] != 0 || b[39] != 0:
		return Record{}, fmt.Errorf("%w: bytes after the operation", ErrLog)
	case r.Offset < 0 || r.Service < 0:
		return Record{}, fmt.Errorf("%w: negative offset or service", ErrLog)
	}
	return r, nil
}

// LogReader reads a log record by record.
type LogReader struct {
	Header LogHeader
	in     *bufio.Reader
}

// NewLogReader reads the header. If the header is not valid, NewLogReader returns ErrLog.
func NewLogReader(in io.Reader) (*LogReader, error) {
	buffered := bufio.NewReaderSize(in, 1<<16)
	var raw [logHeaderSize]byte
	if _, err := io.ReadFull(buffered, raw[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLog, err)
	}
	header, err := decodeHeader(raw[:])
	return &LogReader{Header: header, in: buffered}, err
}

// Next returns the next record, or io.EOF at the end. It treats an incomplete last record (the disk
// is still writing it) as the end.
func (r *LogReader) Next() (Record, error) {
	var raw [recordSize]byte
	if _, err := io.ReadFull(r.in, raw[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
		return Record{}, err
	}
	return decodeRecord(raw[:])
}

// ReadLog reads the whole log at path. For a running disk, call Disk.SyncLog first.
func ReadLog(path string) (LogHeader, []Record, error) {
	file, err := os.Open(path)
	if err != nil {
		return LogHeader{}, nil, err
	}
	defer file.Close()
	reader, err := NewLogReader(file)
	if err != nil {
		return LogHeader{}, nil, fmt.Errorf("%s: %w", path, err)
	}
	var records []Record
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return reader.Header, records, nil
		}
		if err != nil {
			return reader.Header, records, fmt.Errorf("%s: %w", path, err)
		}
		records = append(records, record)
	}
}

// requestLog collects the records of a log in memory. Only flush writes them, in its caller's
// goroutine, so a slow log delays no request. A nil requestLog logs nothing.
type requestLog struct {
	mu       sync.Mutex
	buffer   []byte // not yet written
	room     int64  // bytes left below the bound
	unlogged int64
	long     chan struct{} // receives a signal when many bytes wait to be written

	writing sync.Mutex
	out     *os.File
	spare   []byte
}

const (
	logBufferBytes    = 64 << 10 // more buffered bytes than this wake the writer
	logBufferBytesMax = 16 << 20 // requests beyond this are not logged: the log's disk is too slow
)

// createLog starts a log that grows to at most maxBytes.
func createLog(path string, maxBytes int64) (*requestLog, error) {
	out, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	var wall unix.Timespec
	unix.ClockGettime(unix.CLOCK_REALTIME, &wall)
	header := appendHeader(nil, LogHeader{MonotonicNs: Monotonic(), WallNs: wall.Nano()})
	if _, err := out.Write(header); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return &requestLog{
		out:  out,
		long: make(chan struct{}, 1),
		room: maxBytes - int64(len(header)) - recordSize, // the last record is reserved for Lost
	}, nil
}

func (l *requestLog) add(r Record) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.room < recordSize || len(l.buffer) > logBufferBytesMax {
		l.unlogged++
		return
	}
	l.room -= recordSize
	l.buffer = appendRecord(l.buffer, r)
	if len(l.buffer) > logBufferBytes {
		select {
		case l.long <- struct{}{}:
		default:
		}
	}
}

// flush writes the records added so far.
func (l *requestLog) flush() error {
	if l == nil {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	full := l.buffer
	l.buffer = l.spare[:0]
	l.mu.Unlock()
	l.spare = full
	if len(full) == 0 {
		return nil
	}
	_, err := l.out.Write(full)
	return err
}

// keepFlushing calls flush from time to time, so few records are lost if the server is killed.
func (l *requestLog) keepFlushing() {
	if l == nil {
		return
	}
	for tick := time.Tick(time.Second); ; {
		select {
		case <-tick:
		case <-l.long:
		}
		if err := l.flush(); err != nil {
			fmt.Fprintln(os.Stderr, "penstock: request log:", err)
			return
		}
	}
}

// errLogFull means that requests are missing from the log.
var errLogFull = errors.New("the request log has reached its bound")

func (l *requestLog) complete() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unlogged > 0 {
		return fmt.Errorf("%w: %d requests are missing", errLogFull, l.unlogged)
	}
	return nil
}

func (l *requestLog) close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	if l.unlogged > 0 {
		now := Monotonic()
		l.buffer = appendRecord(l.buffer, Record{Submitted: now, Ended: now, Length: min(l.unlogged, 1<<32-1), Op: Lost})
	}
	l.mu.Unlock()
	return errors.Join(l.flush(), l.out.Close())
}

// Monotonic returns the time on the request log's clock, in ns, for example to mark the beginning
// and the end of a measurement.
func Monotonic() int64 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano()
}
