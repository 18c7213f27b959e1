package hadoop

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"penstock/lab/fetch/maven"
)

//go:embed dist/pom.xml
var pom []byte

// Fetch makes sure that a version's jars are in the cache and returns their folder,
// cacheDir/hadoop-<version>/lib. The jars of the version's tests are in the neighbouring folder
// tests. An empty version is DefaultVersion. Fetch runs Maven if the jars are not in the cache.
func Fetch(ctx context.Context, cacheDir, version string, progress func(format string, args ...any)) (lib string, err error) {
	if version == "" {
		version = DefaultVersion
	}
	if err := CheckVersion(version); err != nil {
		return "", err
	}
	home, err := filepath.Abs(filepath.Join(cacheDir, "hadoop-"+version))
	if err != nil {
		return "", err
	}
	err = maven.Fetch(ctx, maven.Program{Name: "Hadoop " + version, Size: "about 180 jars (130 MB)", Home: home, Jars: libFolder,
		POM: pom, Properties: []string{"hadoop.version=" + version, "examples.version=" + examplesVersion(version), "left.out=" + leftOut(version)},
		Arrange: setTestsApart, Complete: func(home string) bool { return complete(home, version) }}, progress)
	if err != nil {
		return "", fmt.Errorf("hadoop: %w", err)
	}
	return filepath.Join(home, libFolder), nil
}

// Folders of one version in the cache. The tests' jars are separate, because they contain
// configuration and classes that a daemon must not load.
const (
	libFolder   = "lib"
	testsFolder = "tests"
)

// essential returns a few jars from different parts of a version's folder. A folder that lacks one
// of these jars is incomplete.
func essential(version string) []string {
	return []string{
		libFolder + "/hadoop-hdfs-" + version + ".jar",
		libFolder + "/hadoop-mapreduce-examples-" + examplesVersion(version) + ".jar",
		libFolder + "/hadoop-yarn-server-timelineservice-" + version + ".jar",
		testsFolder + "/hadoop-mapreduce-client-jobclient-" + version + "-tests.jar",
	}
}

func complete(home, version string) bool {
	for _, jar := range essential(version) {
		if _, err := os.Stat(filepath.Join(home, jar)); err != nil {
			return false
		}
	}
	return true
}

// setTestsApart moves the jars of tests from lib to tests.
func setTestsApart(home string) error {
	jars, err := filepath.Glob(filepath.Join(home, libFolder, "*-tests.jar"))
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(home, testsFolder), 0o755); err != nil {
		return err
	}
	for _, jar := range jars {
		if err := os.Rename(jar, filepath.Join(home, testsFolder, filepath.Base(jar))); err != nil {
			return err
		}
	}
	return nil
}
