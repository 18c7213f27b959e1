package zookeeper

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"

	"penstock/lab/fetch/maven"
)

// Version is the ZooKeeper release that this package runs.
const Version = "3.9.4"

//go:embed dist/pom.xml
var pom []byte

// Fetch makes sure that ZooKeeper's jars are in the cache and returns their folder. It runs Maven
// if they are not in the cache.
func Fetch(ctx context.Context, cacheDir string, progress func(format string, args ...any)) (lib string, err error) {
	if lib, err = filepath.Abs(filepath.Join(cacheDir, "zookeeper-"+Version)); err != nil {
		return "", err
	}
	err = maven.Fetch(ctx, maven.Program{Name: "ZooKeeper " + Version, Size: "about 25 jars (13 MB)", Home: lib,
		POM: pom, Properties: []string{"zookeeper.version=" + Version}}, progress)
	if err != nil {
		return "", fmt.Errorf("zookeeper: %w", err)
	}
	return lib, nil
}
