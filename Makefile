# All tasks in a checkout of Penstock. `make` lists the targets.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help

# The linter is pinned only here. It is not among the module's dependencies, so that it never
# decides a library's version.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# All targets compile in the same way, static and without this machine's paths; otherwise each
# library would be compiled several times. Only the race detector needs a C compiler.
export CGO_ENABLED := 0
export GOFLAGS     := $(shell go env GOFLAGS) -trimpath

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
MVN     := mvn -B -ntp

AGENT_SOURCES    := $(shell find agent -path agent/target -prune -o -type f -print 2>/dev/null)
SHAREDFS_SOURCES := $(shell find sharedfs -path sharedfs/target -prune -o -type f -print 2>/dev/null)
# Packages with goroutines of their own are tested under the race detector, except for those that
# spend their time reading long answers.
CONCURRENT  := ./node/... ./wire/... ./broker ./broker/zkclient ./broker/leadership ./broker/kerberos ./ops/operate ./ops/top ./ops/doctor

# End-to-end tests by purpose. The tests of NODE share one cluster that is started once; together
# with the unit tests they are `make test`. `make verify` runs all others. Those in ASIDE measure no
# shares of a disk, judge no times, change no kernel parameter and mostly wait, so they run in
# parallel. The longest ones come first, so that no long one is left alone at the end.
NODE   := ./e2e/node
ASIDE  := ./e2e/parallel ./e2e/kerberos ./e2e/hbase ./e2e/hive ./e2e/failover ./e2e/queues ./e2e/packages ./e2e/guest ./e2e/remote ./e2e/prometheus

# These tests are in `make soak` only, because `make verify` must stay short. Of each kind, another
# test is in `make verify` (docs/testing.md).
SOAKED := ^(TestKilledBrick|TestUsersShareTheDisk|TestStarvedReaders|TestFarWeights|TestSparkStandalone|TestThreeKills|TestFromABareMachine)$$|^TestReservation$$/^40%$$|^TestThreeWeights$$/^writers$$|^TestHadoop$$/^3\.4\.3$$

# The simulator's scenarios of `make verify`, the longest ones first. equal-thousand is in sim-large.
SCENARIOS := lab/sim/scenarios
LONG      := $(SCENARIOS)/deadline-thousand.yaml $(SCENARIOS)/shortest-thousand.yaml
THOUSAND  := $(LONG) $(filter-out $(LONG) $(SCENARIOS)/equal-thousand.yaml,$(wildcard $(SCENARIOS)/*-thousand.yaml))

# These can be set on the command line:
# make demo DEMO_ARGS='--against terasort'
DEMO_ARGS ?=
BENCH_TIME ?= 1s
FUZZ_TIME ?= 10s
SOAK_SEED ?= 1
SOAK_KILLS ?= 300

##@ Use

.PHONY: help
help: ## List these targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: bin/penstock-agent.jar bin/penstock-sharedfs.jar go-build ## Build bin/penstock and bin/penstock-lab (static), bin/penstock-agent.jar and bin/penstock-sharedfs.jar

.PHONY: demo
demo: setup build ## Show on real HDFS what a weight of 32:1 does for a job; table and HTML report at the end
	bin/penstock-lab demo $(DEMO_ARGS)

##@ Check

.PHONY: test
test: setup build unit node ## Run unit, property, golden, fuzz-seed and Java tests, and those that share one real cluster

.PHONY: verify
verify: setup build sim-thousand ## Run all other end-to-end tests, each package on a cluster of its own, and the simulator's scenarios with a thousand nodes
	go test -count=1 -timeout 30m -p 2 -skip '$(SOAKED)' -v $(ASIDE)
	go test -count=1 -timeout 40m -p 1 -skip '$(SOAKED)' -v $$(go list ./e2e/... | grep -v $(ASIDE:./%=-e '/%$$') $(NODE:./%=-e '/%$$'))

.PHONY: unit
unit: unit-go unit-java ## Run the tests that need no cluster

.PHONY: node
node: build ## Run the end-to-end tests that share one cluster
	go test -count=1 -timeout 15m -v $(NODE)

.PHONY: lint
lint: check-generated ## Check format, vet, staticcheck, docs/results.md with its chart against results/, docs/reference/cli, and the rules of STYLE.md
	@bad=$$(gofmt -l $$(find . -name '*.go' -not -path './.*/*' -not -path './run/*')); \
	  if [ -n "$$bad" ]; then echo "not formatted (run gofmt -w on them):"; echo "$$bad"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...
	go run ./cmd/penstock-lab results --check
	go test -count=1 ./tidy
	go test -count=1 -run '^TestTheReferenceIsUpToDate$$' ./cmd/penstock ./cmd/penstock-lab

.PHONY: supply
supply: build ## Check the Go libraries against the database of vulnerabilities, and write the bills of materials into dist/
	scripts/vulncheck
	scripts/bom dist

.PHONY: fuzz
fuzz: ## Fuzz each fuzz target for FUZZ_TIME (10s)
	scripts/fuzz $(FUZZ_TIME)

.PHONY: soak
soak: setup build ## Send a million messages over joined sockets, kill the gate's processes and, under load, daemon and DataNodes SOAK_KILLS (300) times, and the daemon 50 times in TeraSort's phases, by SOAK_SEED (1), the broker 100 times; an interrupted campaign continues
	@mkdir -p report
	$(MVN) -Pversions test -Dtest=VersionsTest
	PENSTOCK_ROUNDS=$(SOAK_KILLS) PENSTOCK_SEED=$(SOAK_SEED) go test -count=1 -timeout 60m -v -run TestKillsAndStops ./node/control/gate
	PENSTOCK_JOIN_MESSAGES=1000000 PENSTOCK_SEED=$(SOAK_SEED) go test -count=1 -timeout 60m -v -run 'TestStreamsAreIdentical|TestLoadingAndUnloadingUnderLoad' ./node/control/join
	PENSTOCK_JAVA=8,11,17,21 PENSTOCK_HADOOP=3.1.4,3.2.4,3.3.6,3.4.2,3.4.3,3.5.0 go test -count=1 -timeout 60m -v ./e2e/java
	PENSTOCK_PROTECTION=integrity go test -count=1 -timeout 20m -v ./e2e/kerberos
	PENSTOCK_PROTECTION=privacy go test -count=1 -timeout 20m -v ./e2e/kerberos
	PENSTOCK_FILE_SYSTEMS=gluster,moosefs go test -count=1 -timeout 30m -v ./e2e/parallel
	go test -count=1 -timeout 40m -p 1 -v -run '$(SOAKED)' ./e2e/shares ./e2e/phases ./e2e/versions ./e2e/soak ./e2e/packages
	PENSTOCK_HANG=20s go test -count=1 -timeout 20m -v -run '^TestDiskHangs$$' ./e2e/failure
	bin/penstock-lab soak --phases --seed $(SOAK_SEED) --kills 50 \
	  --resume report/phases-$(SOAK_SEED).jsonl --json report/phases-$(SOAK_SEED).json
	bin/penstock-lab soak --seed $(SOAK_SEED) --kills $(SOAK_KILLS) \
	  --resume report/soak-$(SOAK_SEED)-$(SOAK_KILLS).jsonl --json report/soak-$(SOAK_SEED)-$(SOAK_KILLS).json
	bin/penstock-lab bench coordination --kills 100 --seed $(SOAK_SEED) \
	  --resume report/broker-$(SOAK_SEED).jsonl --json report/broker-$(SOAK_SEED).json

##@ Measure

.PHONY: bench
bench: ## Measure one scheduling decision and, as root, what the monitor costs; the cluster's experiment is `penstock-lab bench isolation`
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCH_TIME) ./core/...
	@if [ "$$(id -u)" = 0 ]; then go test -run '^$$' -bench '^BenchmarkMonitor$$' -benchtime 1x ./node; fi
	@echo
	@echo "The isolation experiment on real HDFS (an hour and more): bin/penstock-lab bench isolation --help"

.PHONY: sim
sim: go-build ## Play the scenarios in lab/sim/scenarios, all that take seconds
	@for s in lab/sim/scenarios/*.yaml; do case "$$s" in *scale-10000*|*equal-thousand*) continue;; esac; echo "== $$s"; bin/penstock-lab sim "$$s" --seed 1; done

.PHONY: sim-thousand
sim-thousand: go-build # part of verify: fails if an expectation is not met. A simulation uses one core
	@printf '%s\n' $(THOUSAND) | xargs -P 2 -I '{}' bash -c \
	  'code=0; out=$$(bin/penstock-lab sim "$$1" --seed 1 2>&1) || code=$$?; printf "== %s\n%s\n" "$$1" "$$out"; exit $$code' sim '{}'

.PHONY: sim-large
sim-large: go-build ## Play 10,000 nodes with 100 applications, with the broker and without, and equal slowdowns on 1,000 (minutes)
	@for s in lab/sim/scenarios/scale-10000*.yaml lab/sim/scenarios/equal-thousand.yaml; do echo "== $$s"; bin/penstock-lab sim "$$s" --seed 1; done

##@ Deliver

.PHONY: packages
packages: build ## Build the packages for Debian and Red Hat into dist/, with their checksums
	scripts/packages dist

##@ Keep house

.PHONY: setup
setup: ## Install what the machine lacks (as root), or say what is missing
	@scripts/setup

.PHONY: generate
generate: ## Compile bpf/ (clang-14, llvm-14) and the .proto (protoc); the results are committed
	go generate ./bpf ./wire/cluster ./wire/deviceplugin

.PHONY: check-generated
check-generated:
	@scripts/check-generated $(EXACT)

.PHONY: reference
reference: ## Write docs/reference/cli from the commands' own help
	go run ./cmd/penstock reference docs/reference/cli
	go run ./cmd/penstock-lab reference docs/reference/cli

.PHONY: results
results: ## Write docs/results.md and its chart from results/; `penstock-lab results import` brings a bench's --json there
	go run ./cmd/penstock-lab results

.PHONY: clean
clean: ## Remove the build's files; downloads in .cache/ stay
	rm -rf bin dist agent/target sharedfs/target

# Parts of the targets above.

# go build decides by content what is out of date, which make cannot do.
.PHONY: go-build
go-build:
	@mkdir -p bin
	go build -ldflags '-s -w -X penstock/cmd/internal/cli.Version=$(VERSION)' -o bin/ ./cmd/penstock ./cmd/penstock-lab

# The jars lie beside the binary, where the binary looks for the agent's.
bin/penstock-agent.jar: $(AGENT_SOURCES)
bin/penstock-sharedfs.jar: $(SHAREDFS_SOURCES) $(AGENT_SOURCES)
bin/penstock-%.jar:
	@mkdir -p bin
	$(MVN) -q -f $*/pom.xml -DskipTests package
	install -m 0644 $*/target/penstock-$*.jar $@

.PHONY: unit-go
unit-go: # packages in CONCURRENT under the race detector, if there is a C compiler
	@if command -v gcc >/dev/null; then race=-race cgo=1; \
	  else race= cgo=0; echo "no gcc: without the race detector"; fi; \
	  CGO_ENABLED=$$cgo go test -timeout 10m $$race $$(go list $(CONCURRENT)); \
	  go test -timeout 10m $$(comm -23 <(go list ./... | grep -v '^penstock/e2e' | sort) <(go list $(CONCURRENT) | sort))

.PHONY: unit-java
unit-java:
	$(MVN) -f agent/pom.xml verify
	$(MVN) -f sharedfs/pom.xml verify
