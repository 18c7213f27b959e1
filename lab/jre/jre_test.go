package jre

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVersionOfJava(t *testing.T) {
	for output, want := range map[string]int{
		"openjdk version \"1.8.0_402\"\nOpenJDK Runtime Environment\n": 8,
		"openjdk version \"11.0.24\" 2024-07-16\n":                     11,
		"java version \"25\" 2025-09-16":                               25,
	} {
		if got, err := major(output); err != nil || got != want {
			t.Errorf("%q is %d, %v", output, got, err)
		}
	}
	if _, err := major("Segmentation fault"); err == nil {
		t.Error("an output without a version has one")
	}
}

func TestAnotherVersionIsRefused(t *testing.T) {
	if _, err := Fetch(t.Context(), t.TempDir(), 9, nil); err == nil || !strings.Contains(err.Error(), "use 8, 11 or 21") {
		t.Errorf("got %v", err)
	}
}

// runtime makes a folder of the cache with a program that says it is Java of the given version.
func runtime(t *testing.T, cache, version string) {
	t.Helper()
	bin := filepath.Join(cache, "jre-11", "usr", "lib", "jvm", "java-11-openjdk-x", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho 'openjdk version \"" + version + "\"' >&2\n"
	if err := os.WriteFile(filepath.Join(bin, "java"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	// Debian has such a link too.
	if err := os.Symlink("java-11-openjdk-x", filepath.Join(bin, "..", "..", "java-1.11.0-openjdk-x")); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsInTheCacheIsNotFetchedAgain(t *testing.T) {
	cache := t.TempDir()
	runtime(t, cache, "11.0.24")
	home, err := Fetch(t.Context(), cache, 11, nil)
	if err != nil || filepath.Base(home) != "java-11-openjdk-x" {
		t.Errorf("got %s, %v", home, err)
	}
}

func TestABrokenRuntimeIsNamed(t *testing.T) {
	cache := t.TempDir()
	runtime(t, cache, "17.0.15")
	if _, err := Fetch(t.Context(), cache, 11, nil); err == nil || !strings.Contains(err.Error(), "delete the folder") {
		t.Errorf("Java 17 instead of 11: %v", err)
	}
	cache = t.TempDir()
	if err := os.Mkdir(filepath.Join(cache, "jre-8"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Fetch(t.Context(), cache, 8, nil); err == nil || !strings.Contains(err.Error(), "delete the folder") {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestLinksLeadToTheUnpackedFiles(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"etc/java", "usr/lib"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/java/net"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	links := map[string][2]string{ // the target before and after
		"net":     {"/etc/java/net", "../../etc/java/net"},
		"within":  {"net", "net"},
		"foreign": {"/etc/java-of-another-package", "/etc/java-of-another-package"},
	}
	for name, target := range links {
		if err := os.Symlink(target[0], filepath.Join(root, "usr/lib", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := linkWithin(root); err != nil {
		t.Fatal(err)
	}
	for name, target := range links {
		if got, err := os.Readlink(filepath.Join(root, "usr/lib", name)); err != nil || got != target[1] {
			t.Errorf("%s leads to %s, %v; want %s", name, got, err, target[1])
		}
	}
}
