// Package bpf holds the programs that run in the kernel, in C, beside the Go that
// loads them.
//
// Problem: only the kernel knows which process causes a device's I/O, at the moment of the request.
// Choice: BPF programs at tracepoints, which need neither a kernel module nor kprobes (absent on
// hardened kernels), loaded by cilium/ebpf. The objects are generated and committed, so that `go
// build` needs no clang; `make generate` regenerates them, and a test fails if they do not match
// their source (source.sum has its checksum and the compiler). No vmlinux.h: kernel.h has the few
// fields that are read, and the loader finds where they are in the kernel that runs. The C may be
// had under the GPL as well, since the kernel gives the helpers that it needs (the current task,
// the kernel's strings) to such programs only.
package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -go-package bpf -target bpfel,bpfeb -type user_key -type user_count -type lost Blockio blockio.c -- -Wall -Werror -O2
//go:generate sh -c "{ cat kernel.h blockio.c bpf.go | sha256sum; clang-14 --version | sed q; } > source.sum"
