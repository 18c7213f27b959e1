package hadoop

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	pathpkg "path"
	"regexp"
	"strings"
)

// Owners attribute the files of DataNodes and NodeManagers to owners, by the files' paths: blocks by
// their number, intermediate data by the application after which YARN named its folder.
type Owners struct{ blocks, applications map[string]string }

// NewOwners returns Owners to whom nothing belongs.
func NewOwners() Owners { return Owners{map[string]string{}, map[string]string{}} }

// AddApplications adds applications by their ids.
func (o Owners) AddApplications(owner string, ids ...string) {
	for _, id := range ids {
		o.applications[id] = owner
	}
}

// AddBlocks adds blocks by their names, such as those of FS.BlockNames.
func (o Owners) AddBlocks(owner string, names ...string) {
	for _, name := range names {
		o.blocks[name] = owner
	}
}

// Of returns the owner of a file, "" if there is none.
func (o Owners) Of(path string) string {
	if name := blockName.FindString(pathpkg.Base(path)); name != "" {
		return o.blocks[name]
	}
	for name := range strings.SplitSeq(path, "/") {
		if owner, ok := o.applications[name]; ok {
			return owner
		}
	}
	return ""
}

// blockName is in the name of a block's file (blk_12) and of its checksums' (blk_12_34.meta).
var blockName = regexp.MustCompile(`blk_\d+`)

const fsckMax = 16 << 20 // bytes of a report: about 100,000 blocks

// BlockNames returns the names (blk_12) of all blocks of the files at and below a path, also of those
// that are open for writing: like `hdfs fsck -files -blocks -openforwrite`, but without a JVM.
func (f *FS) BlockNames(ctx context.Context, path string) ([]string, error) {
	q := url.Values{"ugi": {"root"}, "path": {path}, "files": {"1"}, "blocks": {"1"}, "openforwrite": {"1"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.c.NameNodeURL()+"/fsck?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.c.stream.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	report, err := io.ReadAll(io.LimitReader(resp.Body, fsckMax))
	if err != nil {
		return nil, fmt.Errorf("fsck %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK || len(report) == fsckMax {
		return nil, fmt.Errorf("fsck %s: %s, %d bytes: %.200s", path, resp.Status, len(report), report)
	}
	return blockName.FindAllString(string(report), -1), nil
}
