package hadoop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	pathpkg "path"
	"strconv"
	"time"

	"penstock/lab/poll"
)

// FS accesses the cluster's file system through WebHDFS. Paths are absolute. DataNodes see its
// reads and writes as those of an HDFS client with the name DFSClient_NONMAPREDUCE_..., as for a
// Hadoop shell command.
type FS struct{ c *Cluster }

// File is one entry of a listing.
type File struct {
	Path   string
	Dir    bool
	Length int64
}

// Block is a block of a file, with the places of its replicas.
type Block struct {
	Offset, Length int64
	DataNodes      []string `json:"names"` // "127.0.0.1:port", see Cluster.DataNodeAddress
}

// call performs a metadata operation and decodes its answer into out, unless out is nil.
func (f *FS) call(ctx context.Context, method, path, op string, query url.Values, out any) error {
	body, err := fetch(ctx, bulk, method, f.url(path, op, query), nil)
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

// Mkdir makes a directory and its parents, unless they exist.
func (f *FS) Mkdir(ctx context.Context, path string) error {
	return f.call(ctx, http.MethodPut, path, "MKDIRS", nil, nil)
}

// Remove deletes a file, or a directory with its content. A missing path is not an error.
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

// SetStoragePolicy sets the type of volume for future blocks in a directory: "HOT" is DISK,
// "ALL_SSD" is SSD.
func (f *FS) SetStoragePolicy(ctx context.Context, path, policy string) error {
	return f.call(ctx, http.MethodPut, path, "SETSTORAGEPOLICY", url.Values{"storagepolicy": {policy}}, nil)
}

// SetErasureCoding sets one of HDFS's erasure coding policies for future files in a directory. The
// policy XOR-2-1-1024k needs three DataNodes.
func (f *FS) SetErasureCoding(ctx context.Context, path, policy string) error {
	name := url.Values{"ecpolicy": {policy}}
	if err := f.call(ctx, http.MethodPut, "/", "ENABLEECPOLICY", name, nil); err != nil {
		return err
	}
	return f.call(ctx, http.MethodPut, path, "SETECPOLICY", name, nil)
}

// List returns a directory's entries, or the file itself, sorted by name.
func (f *FS) List(ctx context.Context, path string) ([]File, error) {
	var doc struct {
		FileStatuses struct {
			FileStatus []struct {
				PathSuffix, Type string
				Length           int64
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
		files = append(files, File{Path: p, Dir: s.Type == "DIRECTORY", Length: s.Length})
	}
	return files, nil
}

// Size returns the number of bytes of all files below a path.
func (f *FS) Size(ctx context.Context, path string) (int64, error) {
	var doc struct{ ContentSummary struct{ Length int64 } }
	err := f.call(ctx, http.MethodGet, path, "GETCONTENTSUMMARY", nil, &doc)
	return doc.ContentSummary.Length, err
}

// Blocks returns a file's blocks with the places of their replicas. A block that is being written
// is included.
func (f *FS) Blocks(ctx context.Context, path string) ([]Block, error) {
	var doc struct {
		BlockLocations struct{ BlockLocation []Block }
	}
	err := f.call(ctx, http.MethodGet, path, "GETFILEBLOCKLOCATIONS", nil, &doc)
	return doc.BlockLocations.BlockLocation, err
}

// Checksum returns HDFS's own checksum of a file's contents and block layout, in hexadecimal. A
// DataNode combines the checksums of the blocks.
func (f *FS) Checksum(ctx context.Context, path string) (string, error) {
	var doc struct{ FileChecksum struct{ Bytes string } }
	err := f.call(ctx, http.MethodGet, path, "GETFILECHECKSUM", nil, &doc)
	return doc.FileChecksum.Bytes, err
}

// Open reads a file from its beginning. The caller closes it.
func (f *FS) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := send(ctx, bulk, http.MethodGet, f.url(path, "OPEN", nil), nil)
	if err != nil {
		return nil, fmt.Errorf("hdfs OPEN %s: %w", path, err)
	}
	return resp.Body, nil
}

// Read returns the content of a small file. More than 64 MiB is an error.
func (f *FS) Read(ctx context.Context, path string) ([]byte, error) {
	text, err := fetch(ctx, bulk, http.MethodGet, f.url(path, "OPEN", nil), nil)
	if err != nil {
		return nil, fmt.Errorf("hdfs OPEN %s: %w", path, err)
	}
	return text, nil
}

// CreateOptions are the options of a new file.
type CreateOptions struct {
	BlockSize int64 // default: the cluster's
	Overwrite bool
}

// Create writes a file from r.
func (f *FS) Create(ctx context.Context, path string, r io.Reader, o CreateOptions) error {
	q := url.Values{"overwrite": {strconv.FormatBool(o.Overwrite)}, "noredirect": {"true"}, "buffersize": {"131072"}}
	if o.BlockSize > 0 {
		q.Set("blocksize", strconv.FormatInt(o.BlockSize, 10))
	}
	var redirect struct{ Location string }
	if err := f.call(ctx, http.MethodPut, path, "CREATE", q, &redirect); err != nil {
		return err
	}
	if _, err := fetch(ctx, bulk, http.MethodPut, redirect.Location, io.NopCloser(r)); err != nil {
		return fmt.Errorf("hdfs CREATE %s: %w", path, err)
	}
	return nil
}

var errElsewhere = errors.New("the block lies on another DataNode")

// CreateOn writes a file of one block with its first replica on the DataNode with the given
// address. WebHDFS cannot choose the DataNode. So CreateOn writes a part of the file, asks the
// NameNode where the block is, and starts again if the block is on another DataNode. A DataNode may
// still process an abandoned attempt when the next one begins. So each attempt has its own name,
// which jobs treat as hidden, and the complete file is renamed to path at the end. content must
// return the same bytes each time.
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
	return fmt.Errorf("hdfs CREATE %s: no block on DataNode %s in 64 attempts: check that it is live and has free space", path, dataNode)
}

// attemptOn writes a file and reports whether its only block is on the DataNode. If it reports
// false, a part of the file may exist.
func (f *FS) attemptOn(ctx context.Context, path, dataNode string, size int64, content io.Reader) (right bool, err error) {
	look := &lookingReader{r: content, at: min(size/2, 4<<20), look: func() error {
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		err := poll.Until(soon, 10*time.Millisecond, func() (bool, error) {
			blocks, err := f.Blocks(soon, path)
			if err != nil || len(blocks) == 0 || len(blocks[0].DataNodes) == 0 {
				return false, nil
			}
			if blocks[0].DataNodes[0] != dataNode {
				return false, errElsewhere
			}
			return true, nil
		})
		if errors.Is(err, errElsewhere) {
			return err
		}
		return ctx.Err() // otherwise the location is checked again after the write
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

// lookingReader reads from r. It calls look once, after as many bytes as "at" says.
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
