// Package bpf contains the BPF programs, in C, and the Go code that loads them.
//
// Problem: only the kernel knows which process causes a device's I/O, at the moment of the request.
// Choice: BPF programs on tracepoints, which need neither a kernel module nor kprobes (absent on
// hardened kernels), loaded by cilium/ebpf. The objects are generated and committed, so that `go
// build` needs no clang. `make generate` regenerates them, and a test fails if they do not match
// their source (source.sum has its checksum and the compiler). There is no vmlinux.h: kernel.h has
// the few fields that are read, and the loader finds their places in the running kernel. The C code
// is also under the GPL, because the kernel offers some helpers (the current task, the kernel's
// strings) only to such programs.
package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -go-package bpf -target bpfel,bpfeb -type user_key -type user_count -type lost -type latency_key -type latency_count Blockio blockio.c -- -Wall -Werror -O2
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -go-package bpf -target bpfel,bpfeb -type end -type direction -type connection -type control -type address -type question -type total Socketjoin socketjoin.c -- -Wall -Werror -O2
//go:generate sh -c "{ cat kernel.h blockio.c sockets.h socketjoin.c bpf.go | sha256sum; clang-14 --version | sed q; } > source.sum"
