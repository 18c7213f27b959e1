// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only

/* The parts of the kernel that socketjoin.c needs, in the manner of kernel.h: of the kernel's own
 * structs only the fields that are read. The contexts of the programs are a stable interface
 * (include/uapi/linux/bpf.h) and are complete as far as the last field that is read. */
#ifndef PENSTOCK_SOCKETS_H
#define PENSTOCK_SOCKETS_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef int s32;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define MAP_INT(name, value) int (*name)[value]
#define MAP_TYPE(name, value) value *name
#define INLINE static inline __attribute__((always_inline))

enum { HASH_MAP = 1, ARRAY_MAP = 2, LRU_HASH_MAP = 9, SOCKET_HASH_MAP = 18, SOCKET_STORAGE_MAP = 24, RING_BUFFER_MAP = 27 };
enum { ANY = 0, NEW_ONLY = 1 };
enum { NO_PREALLOCATION = 1 }; /* a map's flag */
enum { CREATE = 1 };           /* of socket_storage */
enum { TO_INGRESS = 1 };       /* of redirect_message */

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*now_ns)(void) = (void *)5;
static u64 (*socket_cookie)(void *ctx) = (void *)46;
static long (*callbacks)(void *ctx, s32 flags) = (void *)59;
static long (*socket_map_add)(void *ctx, void *map, void *key, u64 flags) = (void *)70;
static long (*redirect_message)(void *msg, void *map, void *key, u64 flags) = (void *)71;
static void *(*socket_storage)(void *map, void *sk, void *value, u64 flags) = (void *)107;
static long (*read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static u64 (*jiffies)(void) = (void *)118;
static u64 (*namespace_cookie)(void *ctx) = (void *)122;
static long (*ring_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static struct tcp_sock *(*tcp_socket)(void *sk) = (void *)137;

/* Kinds of sock_ops calls, and the flag that asks for STATE_CHANGED. */
enum { TIMEOUT_INIT = 1, CONNECTED = 4, ACCEPTED = 5, STATE_CHANGED = 10 };
enum { WANT_STATES = 4 };

struct bpf_sock_ops {
	u32 op;
	u32 args[4];
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port; /* network byte order */
	u32 local_port;  /* the machine's byte order */
	u32 is_fullsock;
	u32 unused1[3];
	u32 state;
	u32 unused2[2];
	u32 rcv_nxt;
	u32 snd_nxt;
	u32 unused3[15];
	u64 bytes[2];
	void *sk;
};

struct sk_msg_md {
	u64 data;
	u64 data_end;
	u32 family;
	u32 addresses[10];
	u32 ports[2];
	u32 size;
	void *sk;
};

/* What a BPF_PROG_TYPE_SYSCALL program gets is chosen by its caller. */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	s32 counter;
} atomic_t;
typedef struct {
	long long counter;
} atomic64_t;

struct sock_common {
	struct proto *skc_prot;
	u8 skc_state;
	unsigned long skc_flags;
	atomic64_t skc_cookie;
};
struct sock {
	struct sock_common __sk_common;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	s32 sk_rcvbuf;
	s32 sk_rcvlowat;
	u8 sk_shutdown;
	unsigned long sk_max_pacing_rate;
	void *sk_user_data;
	struct mem_cgroup *sk_memcg;
};
struct inet_sock {
	struct sock sk;
};
struct inet_connection_sock {
	struct inet_sock icsk_inet;
	void *icsk_ulp_ops;
};
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 write_seq;
	u32 copied_seq;
	u8 repair : 1;
};

struct list_head {
	struct list_head *next;
};
typedef struct {
	atomic_t refs;
} refcount_t;
struct sk_psock {
	struct list_head ingress_msg;
	refcount_t refcnt;
};
struct proto {
	unsigned long *memory_pressure;
};
struct mem_cgroup {
	u64 socket_pressure; /* since Linux 6.18 of 64 bits everywhere */
};

enum sock_flags { SOCK_ZEROCOPY = 1 };

#pragma clang attribute pop

#define TCP_ESTABLISHED 1
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define RECEIVES_NO_MORE 1 /* of sk_shutdown */
#define SENDS_NO_MORE 2
#define WITHOUT_PACING (~0UL)
#define POINTER_MASK (~7ULL) /* of sk_user_data */
#define IPV4 2

#define FLAG_BIT(flag) __builtin_preserve_enum_value(*(enum sock_flags *)flag, 1)

/* Reads a field of a struct of the kernel at an address that the verifier does not know. */
#define READ(to, pointer, field) read_kernel(&(to), sizeof(to), __builtin_preserve_access_index(&(pointer)->field))

#define EXISTS(pointer, field) __builtin_preserve_field_info((pointer)->field, 2)

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FROM_NETWORK(value) __builtin_bswap32(value)
#else
#define FROM_NETWORK(value) (value)
#endif

#endif
