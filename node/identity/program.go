package identity

import (
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxProgram is the maximum length of a program's name, in bytes. A longer one counts as unknown.
const maxProgram = 256

// program returns the name of a process's program: of a JVM the main class, or the file of its jar; of
// another process the name of its executable. It is "" if it cannot be read.
//
// The launchers of Hadoop and Spark have a main class of their own, and start the class that their
// arguments name. Then the result is that class.
func (p proc) program(pid int) string {
	target, err := os.Readlink(p.file(pid, "exe"))
	if err != nil {
		return ""
	}
	name := filepath.Base(strings.TrimSuffix(target, " (deleted)")) // replaced while it runs
	if name == "java" {
		text, _ := p.read(pid, "cmdline", maxCommand) // of a longer text, the beginning has the main class
		name = mainOf(string(text))
	}
	if len(name) > maxProgram || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return ""
	}
	return name
}

// withValue are the options of the command java that have a value in the next argument.
var withValue = map[string]bool{
	"-cp": true, "-classpath": true, "--class-path": true, "-p": true, "--module-path": true, "--upgrade-module-path": true,
	"--add-modules": true, "--limit-modules": true, "--add-exports": true, "--add-opens": true, "--add-reads": true,
	"--patch-module": true, "--enable-native-access": true, "--source": true,
}

// mainOf returns the main class, or the name of the jar, in the command line of a JVM; "" if there is
// none.
func mainOf(cmdline string) string {
	args := strings.Split(strings.TrimSuffix(cmdline, "\x00"), "\x00")[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") || len(args) > 0 && strings.HasPrefix(args[0], "@") {
		option := args[0]
		args = args[1:]
		switch {
		case len(args) == 0:
			return ""
		case option == "-jar":
			return filepath.Base(args[0])
		case option == "-m", option == "--module":
			_, class, _ := strings.Cut(args[0], "/")
			return class
		case withValue[option]:
			args = args[1:]
		}
	}
	if len(args) == 0 {
		return ""
	}
	class, args := args[0], args[1:]
	switch class {
	case "org.apache.hadoop.util.RunJar": // JAR [CLASS] ...
		if len(args) > 1 && isClass(args[1]) {
			return args[1]
		}
		if len(args) > 0 {
			return filepath.Base(args[0])
		}
	case "org.apache.spark.deploy.SparkSubmit": // ... --class CLASS ...
		for i, arg := range args {
			if arg == "--class" && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return class
}

// isClass reports whether an argument looks like a class in a package.
func isClass(arg string) bool {
	return strings.Contains(arg, ".") && !strings.ContainsFunc(arg, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._$", r)
	})
}
