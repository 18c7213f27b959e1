// Package tpch generates TPC-H's tables and writes them to HDFS, so that Spark SQL can query them.
// The generator is tpchgen; its output equals that of the benchmark's own dbgen.
package tpch

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"penstock/lab/fetch/pypi"
	"penstock/lab/hadoop"
)

var release = pypi.Package{
	Name: "tpchgen-cli", Version: "2.0.2",
	SHA256: "a1394361d426f35d3a448ca99948f74e333cf85dce98abb101e617273f0eba9e",
}

// program is the path of the generator in its wheel.
const program = "tpchgen_cli-2.0.2.data/scripts/tpchgen-cli"

// Fetch makes sure that the generator is in the cache and returns its path. The generator is
// published for Linux on x86-64.
func Fetch(ctx context.Context, cacheDir string) (generator string, err error) {
	home, err := filepath.Abs(filepath.Join(cacheDir, "tpchgen-"+release.Version))
	if err != nil {
		return "", err
	}
	return filepath.Join(home, "tpchgen-cli"), pypi.Fetch(ctx, home, release, func(archive, into string) (err error) {
		wheel, err := zip.OpenReader(archive)
		if err != nil {
			return err
		}
		defer wheel.Close()
		from, err := wheel.Open(program)
		if err != nil {
			return err
		}
		defer from.Close()
		to, err := os.OpenFile(filepath.Join(into, "tpchgen-cli"), os.O_CREATE|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, from)
		return errors.Join(err, to.Close())
	})
}

// Load generates all tables and writes each into a folder with its name below dir in HDFS. The
// scale factor 1 gives about 1 GB as text, a third of that as Parquet. The large tables are divided
// into parts, so several tasks can read them. temp is a folder for temporary files.
func Load(ctx context.Context, fs *hadoop.FS, generator, temp, dir string, scale float64, parts int) error {
	work, err := os.MkdirTemp(temp, "tpch-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for table, cut := range map[string]bool{
		"lineitem": true, "orders": true, "partsupp": true,
		"customer": false, "part": false, "supplier": false, "nation": false, "region": false,
	} {
		n := 1
		if cut {
			n = parts
		}
		for part := 1; part <= n; part++ {
			args := []string{"--scale-factor", strconv.FormatFloat(scale, 'f', -1, 64), "--tables", table, "--format", "parquet", "--output-dir", work}
			if n > 1 {
				args = append(args, "--parts", strconv.Itoa(n), "--part", strconv.Itoa(part))
			}
			if out, err := exec.CommandContext(ctx, generator, args...).CombinedOutput(); err != nil {
				return fmt.Errorf("tpchgen-cli %s: %w: %s", table, err, out)
			}
		}
	}
	return filepath.WalkDir(work, func(file string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		name := filepath.Base(file) // TABLE.parquet or TABLE.PART.parquet
		table, _, _ := strings.Cut(name, ".")
		if err := fs.Create(ctx, path.Join(dir, table, name), f, hadoop.CreateOptions{}); err != nil {
			return err
		}
		return os.Remove(file)
	})
}
