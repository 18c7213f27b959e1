package hbase

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"

	"penstock/lab/fetch/maven"
)

// Version is the HBase release that this package runs. Those without "hadoop3" are built for Hadoop 2, and end at once.
const Version = "2.6.4-hadoop3"

// toolsVersion is the release of PerformanceEvaluation.
const toolsVersion = "2.6.4"

//go:embed dist/pom.xml
var pom []byte

// Fetch makes sure that HBase's jars are in the cache and returns their folder. It runs Maven if they are not in the
// cache.
func Fetch(ctx context.Context, cacheDir string, progress func(format string, args ...any)) (lib string, err error) {
	if lib, err = filepath.Abs(filepath.Join(cacheDir, "hbase-"+Version)); err != nil {
		return "", err
	}
	err = maven.Fetch(ctx, maven.Program{Name: "HBase " + Version, Size: "about 65 jars (60 MB)", Home: lib,
		POM: pom, Properties: []string{"hbase.version=" + Version, "tools.version=" + toolsVersion}}, progress)
	if err != nil {
		return "", fmt.Errorf("hbase: %w", err)
	}
	return lib, nil
}
