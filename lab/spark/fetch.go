package spark

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"penstock/lab/fetch/pypi"
)

// Version is the Spark release that runs where none is named. It needs Java 17.
const Version = "4.1.3"

// Earlier is the last release line that runs on Java 8 and 11.
const Earlier = "3.5.5"

// digests are the SHA-256 sums of the releases' source archives on PyPI.
var digests = map[string]string{
	Version: "b600238e771e45618a58beaf9d63cfd9aa06f61ce193244cedf890a04a4409f7",
	Earlier: "6effc9ce98edf231f4d683fd14f7270629bf8458c628d6a2620ded4bb34f3cb9",
}

// Fetch makes sure that a Spark release is in the cache and returns its home. It fetches the complete Spark
// from PyPI (YARN's client is among its 330 jars) and arranges it as in Spark's own archive: jars,
// bin, python.
func Fetch(ctx context.Context, cacheDir, version string, progress func(format string, args ...any)) (home string, err error) {
	digest, ok := digests[version]
	if !ok {
		return "", fmt.Errorf("spark: unknown release %q: use %s or %s", version, Version, Earlier)
	}
	if home, err = filepath.Abs(filepath.Join(cacheDir, "spark-"+version)); err != nil {
		return "", err
	}
	if _, err := os.Stat(home); err == nil {
		return home, nil
	}
	if progress != nil {
		begin := time.Now()
		progress("Spark %s: fetching it (up to 455 MB) with pip into %s, once", version, home)
		defer func() { progress("Spark %s: fetched in %.0f s", version, time.Since(begin).Seconds()) }()
	}
	return home, pypi.Fetch(ctx, home, pypi.Package{Name: "pyspark", Version: version, Source: true, SHA256: digest}, unpack)
}

// folders are the parts of the archive to unpack: path in the archive -> path in Spark's home.
var folders = map[string]string{"deps/jars/": "jars/", "deps/bin/": "bin/", "pyspark/": "python/pyspark/", "lib/": "python/lib/"}

func unpack(archive, into string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close()
	files := tar.NewReader(zipped)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		_, path, _ := strings.Cut(h.Name, "/")
		for from, to := range folders {
			if rest, ok := strings.CutPrefix(path, from); ok && rest != "" && h.Typeflag == tar.TypeReg {
				if err := extract(root, to+rest, h.FileInfo().Mode().Perm(), files); err != nil {
					return err
				}
			}
		}
	}
	return zipPython(into)
}

func extract(root *os.Root, name string, mode fs.FileMode, from io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}

// zipPython makes pyspark.zip, the archive of Spark's Python part. Spark's own release contains
// this file, but its package on PyPI does not. YARN's containers receive the file.
func zipPython(home string) (err error) {
	out, err := os.Create(filepath.Join(home, "python", "lib", "pyspark.zip"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	z := zip.NewWriter(out)
	if err := z.AddFS(onlyBelow{os.DirFS(filepath.Join(home, "python")), "pyspark"}); err != nil {
		return err
	}
	return z.Close()
}

// onlyBelow is a file system with a root that contains only one folder.
type onlyBelow struct {
	fs.FS
	folder string
}

// ReadDir implements fs.ReadDirFS.
func (o onlyBelow) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(o.FS, name)
	if err == nil && name == "." {
		all = slices.DeleteFunc(all, func(e fs.DirEntry) bool { return e.Name() != o.folder })
	}
	if err == nil && len(all) == 0 {
		return nil, fmt.Errorf("%s is empty", name)
	}
	return all, err
}
