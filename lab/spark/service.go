package spark

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"strconv"

	"penstock/lab/fetch/maven"
	testports "penstock/lab/ports"
)

var (
	//go:embed dist/pom.xml
	servicePOM []byte
	//go:embed dist/packed/pom.xml
	packedPOM []byte
)

// Service is Spark's external shuffle service in NodeManagers, of the release Earlier, or in a standalone Worker.
type Service struct {
	Jars string // class path pattern, for the NodeManagers
	port int
}

// NewService chooses a port for the service in a standalone Worker, which needs no further jars. The Worker runs the service if the
// settings of Config contain those of Application.
func NewService() (Service, error) {
	free, err := testports.Free(1)
	if err != nil {
		return Service{}, err
	}
	return Service{port: free[0]}, nil
}

// FetchService makes sure that the service's jars are in the cache, and chooses a port for it. It runs Maven if the jars
// are not in the cache. If packed is set, the service is one jar with a renamed netty, as in Spark's distribution;
// otherwise it uses Hadoop's netty.
func FetchService(ctx context.Context, cacheDir string, packed bool, progress func(format string, args ...any)) (Service, error) {
	lib, err := filepath.Abs(filepath.Join(cacheDir, "spark-shuffle-service-"+Earlier))
	if err != nil {
		return Service{}, err
	}
	program := maven.Program{Name: "Spark's shuffle service " + Earlier, Size: "4 jars (3 MB)", Home: lib,
		POM: servicePOM, Properties: []string{"spark.version=" + Earlier}}
	if packed {
		lib += "-packed"
		program.Home, program.POM, program.Size = lib, packedPOM, "its jars and netty's (20 MB)"
		program.Goals = []string{"jar:jar", "shade:shade"}
	}
	err = maven.Fetch(ctx, program, progress)
	if err != nil {
		return Service{}, fmt.Errorf("spark: %w", err)
	}
	s, err := NewService()
	s.Jars = filepath.Join(lib, "*")
	return s, err
}

// NodeManager returns the settings of a NodeManager that runs the service.
func (s Service) NodeManager() map[string]string {
	return map[string]string{
		auxServices:                          "mapreduce_shuffle,spark_shuffle",
		auxServices + ".spark_shuffle.class": "org.apache.spark.network.yarn.YarnShuffleService",
		servicePort:                          strconv.Itoa(s.port),
		"spark.yarn.shuffle.stopOnFailure":   "true",
	}
}

// Isolated returns further settings of a NodeManager that loads the service in a class loader of its own.
func (s Service) Isolated() map[string]string {
	return map[string]string{auxServices + ".spark_shuffle.classpath": s.Jars}
}

const (
	auxServices    = "yarn.nodemanager.aux-services"
	serviceEnabled = "spark.shuffle.service.enabled"
	servicePort    = "spark.shuffle.service.port"
)

// Application returns the settings of an application that uses the service. All blocks of other executors come from the
// service, also of executors of the same host.
func (s Service) Application() map[string]string {
	return map[string]string{
		serviceEnabled:                    "true",
		servicePort:                       strconv.Itoa(s.port),
		"spark.shuffle.readHostLocalDisk": "false",
	}
}
