package hadoop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	pathpkg "path"
	"strconv"
	"time"
)

// FS is the cluster's file system, spoken to in WebHDFS. Paths are absolute.
// Its reads and writes reach the DataNodes as an HDFS client of their own name
// (DFSClient_NONMAPREDUCE_...), like those of a shell.
type FS struct{ c *Cluster }

// File is one entry of a listing.
type File struct {
	Path        string
	Dir         bool
	Length      int64
	Replication int
	BlockSize   int64
	Modified    time.Time
}

// Block is one block of a file and where its replicas are.
type Block struct {
	Offset, Length int64
	DataNodes      []string // "127.0.0.1:port", see Cluster.DataNodeAddress
	StorageTypes   []string // DISK or SSD, in the same order
}

// Checksum is HDFS's own checksum of a file's contents and block layout.
type Checksum struct {
	Algorithm string
	Bytes     string // hexadecimal
}

type remoteError struct {
	RemoteException struct{ Exception, Message string }
}

// call does one metadata operation and decodes its answer into out (nil: none).
func (f *FS) call(ctx context.Context, method, path, op string, query url.Values, out any) error {
	body, err := f.do(ctx, method, f.url(path, op, query), nil)
	if err != nil {
		return fmt.Errorf("hdfs %s %s: %w", op, path, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("hdfs %s %s: %w", op, path, err)
	}
	return nil
}

func (f *FS) url(path, op string, query url.Values) string {
	q := url.Values{"op": {op}, "user.name": {user()}}
	for k, v := range query {
		q[k] = v
	}
	u := url.URL{Scheme: "http", Host: f.c.cfg.at(f.c.ports.nnHTTP), Path: "/webhdfs/v1" + path, RawQuery: q.Encode()}
	return u.String()
}

// do sends one request and returns a small answer. A missing file is
// fs.ErrNotExist.
func (f *FS) do(ctx context.Context, method, url string, body io.Reader) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	resp, err := f.c.stream.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := answerError(resp); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(resp.Body, 64<<20))
}

func answerError(resp *http.Response) error {
	if resp.StatusCode/100 == 2 || resp.StatusCode/100 == 3 {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var remote remoteError
	if json.Unmarshal(body, &remote) == nil && remote.RemoteException.Exception != "" {
		if remote.RemoteException.Exception == "FileNotFoundException" {
			return fmt.Errorf("%w: %s", fs.ErrNotExist, remote.RemoteException.Message)
		}
		return fmt.Errorf("%s: %s", remote.RemoteException.Exception, remote.RemoteException.Message)
	}
	return fmt.Errorf("%s: %.300s", resp.Status, body)
}

// Mkdir makes a directory and its parents; one that exists is fine.
func (f *FS) Mkdir(ctx context.Context, path string) error {
	return f.call(ctx, http.MethodPut, path, "MKDIRS", nil, nil)
}

// Remove deletes a file or a directory with all that is in it; nothing there is
// fine.
func (f *FS) Remove(ctx context.Context, path string) error {
	return f.call(ctx, http.MethodDelete, path, "DELETE", url.Values{"recursive": {"true"}}, nil)
}

// Rename moves a file or directory.
func (f *FS) Rename(ctx context.Context, from, to string) error {
	var ok struct{ Boolean bool }
	err := f.call(ctx, http.MethodPut, from, "RENAME", url.Values{"destination": {to}}, &ok)
	if err == nil && !ok.Boolean {
		err = fmt.Errorf("hdfs RENAME %s: the NameNode refuses to move it to %s", from, to)
	}
	return err
}

// SetStoragePolicy names what kind of volume a directory's later blocks go to:
// "HOT" DISK, "ALL_SSD" SSD.
func (f *FS) SetStoragePolicy(ctx context.Context, path, policy string) error {
	return f.call(ctx, http.MethodPut, path, "SETSTORAGEPOLICY", url.Values{"storagepolicy": {policy}}, nil)
}

// SetErasureCoding stripes a directory's later files by one of HDFS's own policies, such
// as XOR-2-1-1024k, which needs three DataNodes.
func (f *FS) SetErasureCoding(ctx context.Context, path, policy string) error {
	name := url.Values{"ecpolicy": {policy}}
	if err := f.call(ctx, http.MethodPut, "/", "ENABLEECPOLICY", name, nil); err != nil {
		return err
	}
	return f.call(ctx, http.MethodPut, path, "SETECPOLICY", name, nil)
}

// List returns a directory's entries, or the file itself, by name.
func (f *FS) List(ctx context.Context, path string) ([]File, error) {
	var doc struct {
		FileStatuses struct {
			FileStatus []struct {
				PathSuffix, Type  string
				Length, BlockSize int64
				Replication       int
				ModificationTime  int64
			}
		}
	}
	if err := f.call(ctx, http.MethodGet, path, "LISTSTATUS", nil, &doc); err != nil {
		return nil, err
	}
	files := make([]File, 0, len(doc.FileStatuses.FileStatus))
	for _, s := range doc.FileStatuses.FileStatus {
		p := path
		if s.PathSuffix != "" {
			p = path + "/" + s.PathSuffix
		}
		files = append(files, File{Path: p, Dir: s.Type == "DIRECTORY", Length: s.Length, Replication: s.Replication,
			BlockSize: s.BlockSize, Modified: time.UnixMilli(s.ModificationTime)})
	}
	return files, nil
}

// Size is the number of bytes and files below a path.
func (f *FS) Size(ctx context.Context, path string) (bytes, files int64, err error) {
	var doc struct {
		ContentSummary struct{ Length, FileCount int64 }
	}
	err = f.call(ctx, http.MethodGet, path, "GETCONTENTSUMMARY", nil, &doc)
	return doc.ContentSummary.Length, doc.ContentSummary.FileCount, err
}

// Blocks says where a file's blocks lie, the one being written included.
func (f *FS) Blocks(ctx context.Context, path string) ([]Block, error) {
	var doc struct {
		BlockLocations struct {
			BlockLocation []struct {
				Names, StorageTypes []string
				Offset, Length      int64
			}
		}
	}
	if err := f.call(ctx, http.MethodGet, path, "GETFILEBLOCKLOCATIONS", nil, &doc); err != nil {
		return nil, err
	}
	var blocks []Block
	for _, b := range doc.BlockLocations.BlockLocation {
		blocks = append(blocks, Block{Offset: b.Offset, Length: b.Length, DataNodes: b.Names, StorageTypes: b.StorageTypes})
	}
	return blocks, nil
}

// Checksum asks a DataNode to sum a file's block checksums.
func (f *FS) Checksum(ctx context.Context, path string) (Checksum, error) {
	var doc struct{ FileChecksum Checksum }
	err := f.call(ctx, http.MethodGet, path, "GETFILECHECKSUM", nil, &doc)
	return doc.FileChecksum, err
}

// Open reads a file from an offset, length bytes at most; a length of 0 means
// to its end. The caller closes it.
func (f *FS) Open(ctx context.Context, path string, offset, length int64) (io.ReadCloser, error) {
	q := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if length > 0 {
		q.Set("length", strconv.FormatInt(length, 10))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url(path, "OPEN", q), nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.c.stream.Do(req)
	if err != nil {
		return nil, fmt.Errorf("hdfs OPEN %s: %w", path, err)
	}
	if err := answerError(resp); err != nil {
		resp.Body.Close()
		return nil, fmt.Errorf("hdfs OPEN %s: %w", path, err)
	}
	return resp.Body, nil
}

// Read returns a whole small file, of 64 MiB at most.
func (f *FS) Read(ctx context.Context, path string) ([]byte, error) {
	r, err := f.Open(ctx, path, 0, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(io.LimitReader(r, 64<<20+1)); err != nil {
		return nil, fmt.Errorf("hdfs OPEN %s: %w", path, err)
	}
	if b.Len() > 64<<20 {
		return nil, fmt.Errorf("hdfs OPEN %s: larger than 64 MiB; use Open", path)
	}
	return b.Bytes(), nil
}

// CreateOptions of a file; zero fields are the cluster's defaults.
type CreateOptions struct {
	BlockSize   int64
	Replication int
	Overwrite   bool
}

// Create writes a file from r.
func (f *FS) Create(ctx context.Context, path string, r io.Reader, o CreateOptions) error {
	q := url.Values{"overwrite": {strconv.FormatBool(o.Overwrite)}, "noredirect": {"true"}, "buffersize": {"131072"}}
	if o.BlockSize > 0 {
		q.Set("blocksize", strconv.FormatInt(o.BlockSize, 10))
	}
	if o.Replication > 0 {
		q.Set("replication", strconv.Itoa(o.Replication))
	}
	var redirect struct{ Location string }
	if err := f.call(ctx, http.MethodPut, path, "CREATE", q, &redirect); err != nil {
		return err
	}
	if _, err := f.do(ctx, http.MethodPut, redirect.Location, io.NopCloser(r)); err != nil {
		return fmt.Errorf("hdfs CREATE %s: %w", path, err)
	}
	return nil
}

var errElsewhere = errors.New("the block lies on another DataNode")

// CreateOn writes a file of one block, of which the first replica lies on the
// DataNode with the given address. WebHDFS cannot ask for one, so it looks where
// the NameNode has put the block when the first MiB has been written, and begins
// again until that is the right one. A DataNode may act on an attempt that was
// broken off long after the next has begun, so each has a name of its own, which
// jobs take for a hidden file, and the good one is moved to path in the end.
// content makes the same bytes each time.
func (f *FS) CreateOn(ctx context.Context, path, dataNode string, size int64, content func() io.Reader) error {
	for n := range 64 {
		attempt := fmt.Sprintf("%s/.%s.attempt-%d", pathpkg.Dir(path), pathpkg.Base(path), n)
		right, err := f.attemptOn(ctx, attempt, dataNode, size, content())
		if err != nil {
			return err
		}
		if !right {
			if err := f.Remove(ctx, attempt); err != nil {
				return err
			}
			continue
		}
		if err := f.Remove(ctx, path); err != nil {
			return err
		}
		return f.Rename(ctx, attempt, path)
	}
	return fmt.Errorf("hdfs CREATE %s: no block on DataNode %s in 64 attempts; is it live and has it room?", path, dataNode)
}

// attemptOn writes a file and reports whether its one block lies on the DataNode;
// where it does not, the file may be there in part.
func (f *FS) attemptOn(ctx context.Context, path, dataNode string, size int64, content io.Reader) (right bool, err error) {
	look := &lookingReader{r: content, at: min(size/2, 4<<20), look: func() error {
		for range 200 {
			blocks, err := f.Blocks(ctx, path)
			if err == nil && len(blocks) > 0 && len(blocks[0].DataNodes) > 0 {
				if blocks[0].DataNodes[0] != dataNode {
					return errElsewhere
				}
				return nil
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil // looked at again below
	}}
	err = f.Create(ctx, path, look, CreateOptions{BlockSize: (size + 511) / 512 * 512, Overwrite: true})
	if look.elsewhere {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	blocks, err := f.Blocks(ctx, path)
	return len(blocks) == 1 && blocks[0].Length == size && blocks[0].DataNodes[0] == dataNode, err
}

// lookingReader calls look once, when the bytes before at have been handed out.
type lookingReader struct {
	r         io.Reader
	at        int64
	look      func() error
	elsewhere bool
}

func (l *lookingReader) Read(p []byte) (int, error) {
	if l.look != nil && l.at <= 0 {
		err := l.look()
		l.look = nil
		if err != nil {
			l.elsewhere = errors.Is(err, errElsewhere)
			return 0, err
		}
	}
	if l.look != nil {
		p = p[:min(int64(len(p)), l.at)]
	}
	n, err := l.r.Read(p)
	l.at -= int64(n)
	return n, err
}
