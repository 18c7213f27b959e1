package hive

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"

	"penstock/lab/fetch/maven"
)

// Version is the Hive release that this package runs, and TezVersion the Tez release that this Hive was built with.
const (
	Version    = "4.0.1"
	TezVersion = "0.10.4"
)

//go:embed dist/hive/pom.xml
var hivePOM []byte

//go:embed dist/tez/pom.xml
var tezPOM []byte

// Libraries are the folders of jars: Hive's for its clients, and Tez's also for the containers.
type Libraries struct{ Hive, Tez string }

// Fetch makes sure that the jars of Hive and Tez are in the cache and returns their folders. It runs Maven if they are not
// in the cache.
func Fetch(ctx context.Context, cacheDir string, progress func(format string, args ...any)) (lib Libraries, err error) {
	if cacheDir, err = filepath.Abs(cacheDir); err != nil {
		return lib, err
	}
	lib = Libraries{Hive: filepath.Join(cacheDir, "hive-"+Version), Tez: filepath.Join(cacheDir, "tez-"+TezVersion)}
	for _, p := range []maven.Program{
		{Name: "Tez " + TezVersion, Size: "about 130 jars (44 MB)", Home: lib.Tez, POM: tezPOM, Properties: []string{"tez.version=" + TezVersion}},
		{Name: "Hive " + Version, Size: "about 175 jars (200 MB)", Home: lib.Hive, POM: hivePOM, Properties: []string{"hive.version=" + Version}},
	} {
		if err := maven.Fetch(ctx, p, progress); err != nil {
			return lib, fmt.Errorf("hive: %w", err)
		}
	}
	return lib, nil
}
