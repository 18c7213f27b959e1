package disk

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

var testRecords = []Record{
	{Submitted: 1, Ended: 2_000_000, Service: 1_500_000, Offset: 4096, Length: 1 << 20, Op: Read},
	{Submitted: 1 << 60, Ended: 1<<60 + 1, Offset: 1 << 40, Length: 1<<32 - 1, Op: Discard},
	{Submitted: 5, Ended: 6, Service: 7, Offset: 0, Length: 512, Op: Write},
}

func TestLogRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := createLog(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		for _, r := range testRecords {
			log.add(r)
		}
	}
	if err := log.close(); err != nil {
		t.Fatal(err)
	}
	// The disk may have been killed, or may still be writing.
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(raw, 0, 0, 0), 0o644); err != nil {
		t.Fatal(err)
	}
	header, records, err := ReadLog(path)
	if err != nil {
		t.Fatal(err)
	}
	if now := Monotonic(); header.MonotonicNs > now || header.WallNs == 0 {
		t.Errorf("header %+v at %d", header, now)
	}
	if len(records) != 3000 {
		t.Fatalf("%d records, want 3000", len(records))
	}
	for i, r := range records {
		if r != testRecords[i%3] {
			t.Fatalf("record %d is %+v, want %+v", i, r, testRecords[i%3])
		}
	}
}

func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const bound = logHeaderSize + 10*recordSize
	log, err := createLog(path, bound)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		log.add(testRecords[0])
	}
	if err := log.complete(); !errors.Is(err, errLogFull) {
		t.Errorf("the log is over its bound and says %v", err)
	}
	if err := log.close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > bound {
		t.Errorf("%d bytes (%v), want at most %d", info.Size(), err, bound)
	}
	_, records, err := ReadLog(path)
	if err != nil || len(records) != 10 {
		t.Fatalf("%d records (%v), want 10", len(records), err)
	}
	if last := records[9]; last.Op != Lost || last.Length != 41 {
		t.Errorf("the last record is %+v, want 41 lost", last)
	}
}

func TestNotALog(t *testing.T) {
	header := appendHeader(nil, LogHeader{})
	header[11] = 2 // the next version
	for _, text := range [][]byte{nil, []byte("PSTKDISK"), header, bytes.Repeat([]byte{'x'}, 100)} {
		if _, err := NewLogReader(bytes.NewReader(text)); !errors.Is(err, ErrLog) {
			t.Errorf("%q: %v, want ErrLog", text, err)
		}
	}
}

// Any input either decodes to records that encode to the same bytes, or fails.
func FuzzLog(f *testing.F) {
	sample := appendHeader(nil, LogHeader{MonotonicNs: 1, WallNs: 2})
	f.Add(sample)
	for _, r := range testRecords {
		sample = appendRecord(sample, r)
	}
	f.Add(sample)
	f.Add(sample[:len(sample)-1])
	f.Fuzz(func(t *testing.T, raw []byte) {
		reader, err := NewLogReader(bytes.NewReader(raw))
		if err != nil {
			return
		}
		again := appendHeader(nil, reader.Header)
		for {
			record, err := reader.Next()
			if err != nil {
				if errors.Is(err, io.EOF) && len(raw)-len(again) >= recordSize {
					t.Errorf("%d bytes left unread", len(raw)-len(again))
				}
				break
			}
			again = appendRecord(again, record)
		}
		if !bytes.HasPrefix(raw, again) {
			t.Errorf("%x was read from %x", again, raw)
		}
	})
}
