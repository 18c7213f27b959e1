//go:build ignore

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only

/* Joins the two sockets of a TCP connection between network namespaces of one machine: what one end
 * sends is put into the other end's queue, past bridge, NAT and TCP (docs/design/network.md).
 *
 * Finding the two ends. Both ends of a connection know its two initial sequence numbers, and NAT
 * does not change these. The client's end is noted in `pending` by both numbers when the SYN-ACK
 * arrives, and the server's end finds it when the client's ACK arrives. If the addresses of the two
 * ends mirror each other, the connection is verified. Otherwise the daemon must first find the
 * connection in the kernel's table of connections (NAT), and allows it in `orders`.
 *
 * Only a socket that is in `sockets` can be joined, and a client's socket can only be added when its
 * SYN-ACK arrives, before its peer is known. So `here` has the addresses of this machine's own network
 * namespace, which the daemon writes, and those at which a SYN has arrived or a connection was found.
 *
 * Choosing the way. The program choose() runs for each message that a socket in `sockets` sends,
 * under the lock of the sender's socket. A reader gets the bytes of the queue for joined bytes
 * before those that came by TCP. So a direction changes from TCP to the queue only when the reader
 * has read all that was ever sent by TCP. It changes from the queue to TCP at any time: then older
 * bytes are in the queue, and younger ones come by TCP.
 *
 * Once a second (`proof_ns`) a message of each direction goes by TCP, and the direction is joined again when
 * the reader has read it. So a connection whose packets are dropped, by whatever rule, stops, and the kernel's
 * table of connections keeps its entry for NAT.
 *
 * The kernel does not bound the queue, so choose() does: within the reader's socket buffer, with a
 * part of it left for TCP. Beyond the bound bytes go by TCP, whose window then makes the sender wait.
 *
 * Every map has a limit. A connection that does not fit is not joined. */
#include "sockets.h"

#define STALE_NS 1000000000ULL /* the daemon's heartbeat */
#define MESSAGE 1024           /* bytes that the kernel needs for a message, besides its content */

/* Why a connection is no longer joined. The numbers are those of package join. */
enum { NOT_RELEASED, RELEASED_BY_RULES, RELEASED_STALE, RELEASED_PACED, RELEASED_ORDER, RELEASED_KIND };

enum { ORDER_JOIN = 1, ORDER_RELEASE = 2 };

enum { CLIENT, SERVER };

struct end {
	u64 cookie; /* of the socket */
	u64 socket; /* its address, which is only read, and only if the cookie is found there */
	u64 netns;  /* cookie */
	u32 local[4];
	u32 remote[4];
	u16 local_port;
	u16 remote_port;
	u32 mapped; /* in `sockets` */
};

/* What one end sends. Its fields are protected by the lock of the sender's socket. */
struct direction {
	u64 bytes; /* joined; the reader may not have read the last ones */
	u64 messages;
	/* All but the last messages have been read: at least the first read_messages. When the reader
	 * has read mark_bytes, it has read mark_messages. */
	u64 read_messages;
	u64 mark_bytes;
	u64 mark_messages;
	u64 proved_ns; /* when the way of packets was last known to be open */
	u32 joined;
	u32 passed; /* a message has gone by TCP since the direction was last joined */
	u32 full;   /* times that the reader's memory was full */
	u32 unused;
};

struct connection {
	struct end ends[2];
	struct direction directions[2];
	u64 since_ns;
	u32 epoch;
	u32 verified;
	u32 released;
	u32 closed[2]; /* of each end: 1 if its socket is closed */
	u32 unused;
};

/* The place of a socket in its connection. */
struct place {
	u64 connection; /* cookie of the client's socket */
	u64 side;
};

struct sequence {
	u32 client;
	u32 server;
};

struct address {
	u32 part[4];
};

struct control {
	u64 beat_ns; /* the daemon's last heartbeat */
	u32 epoch;   /* is increased to release all connections */
	u32 ports;   /* whether only connections to `ports` are joined */
	u32 share;   /* of the reader's buffer that may be used, in 256ths */
	u32 stopped; /* whether no further connections are joined */
	u64 proof_ns; /* for how long the way of packets counts as open */
};

struct {
	MAP_INT(type, ARRAY_MAP);
	MAP_INT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct control);
} controls SECTION(".maps");

struct {
	MAP_INT(type, HASH_MAP);
	MAP_INT(max_entries, 1024);
	MAP_TYPE(key, u16);
	MAP_TYPE(value, u8);
} ports SECTION(".maps");

struct {
	MAP_INT(type, LRU_HASH_MAP);
	MAP_INT(max_entries, 4096);
	MAP_TYPE(key, struct address);
	MAP_TYPE(value, u64); /* the server's namespace */
} here SECTION(".maps");

struct {
	MAP_INT(type, LRU_HASH_MAP);
	MAP_INT(max_entries, 4096);
	MAP_TYPE(key, struct sequence);
	MAP_TYPE(value, struct end);
} pending SECTION(".maps");

struct {
	MAP_INT(type, SOCKET_HASH_MAP);
	MAP_INT(max_entries, 65536);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u64);
} sockets SECTION(".maps");

struct {
	MAP_INT(type, SOCKET_STORAGE_MAP);
	MAP_INT(map_flags, NO_PREALLOCATION);
	MAP_TYPE(key, s32);
	MAP_TYPE(value, struct place);
} places SECTION(".maps");

struct {
	MAP_INT(type, HASH_MAP);
	MAP_INT(map_flags, NO_PREALLOCATION);
	MAP_INT(max_entries, 32768);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct connection);
} connections SECTION(".maps");

/* The daemon's decisions. */
struct {
	MAP_INT(type, HASH_MAP);
	MAP_INT(map_flags, NO_PREALLOCATION);
	MAP_INT(max_entries, 32768);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u32);
} orders SECTION(".maps");

/* Connections that the daemon has to verify. */
struct {
	MAP_INT(type, RING_BUFFER_MAP);
	MAP_INT(max_entries, 65536);
} candidates SECTION(".maps");

/* What closed connections have joined. */
struct total {
	u64 connections;
	u64 bytes;
};

struct {
	MAP_INT(type, ARRAY_MAP);
	MAP_INT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct total);
} totals SECTION(".maps");

const char terms[] SECTION("license") = "GPL";

INLINE struct control *living(void)
{
	u32 zero = 0;
	struct control *c = map_lookup(&controls, &zero);
	if (!c || c->stopped || now_ns() - c->beat_ns > STALE_NS)
		return 0;
	return c;
}

/* Loads a field of a context. The verifier refuses what compilers like: to load a field at an address that
 * depends on a branch. */
#define LOAD(to, field)                         \
	do {                                    \
		u32 loaded = (field);           \
		asm volatile("" : "+r"(loaded)); \
		(to) = loaded;                  \
	} while (0)

/* The address as one of IPv6. */
INLINE void local_of(struct bpf_sock_ops *ctx, u32 to[4])
{
	if (ctx->family == IPV4) {
		to[0] = to[1] = 0;
		to[2] = FROM_NETWORK(0xffff);
		LOAD(to[3], ctx->local_ip4);
	} else {
		LOAD(to[0], ctx->local_ip6[0]);
		LOAD(to[1], ctx->local_ip6[1]);
		LOAD(to[2], ctx->local_ip6[2]);
		LOAD(to[3], ctx->local_ip6[3]);
	}
}

INLINE void remote_of(struct bpf_sock_ops *ctx, u32 to[4])
{
	if (ctx->family == IPV4) {
		to[0] = to[1] = 0;
		to[2] = FROM_NETWORK(0xffff);
		LOAD(to[3], ctx->remote_ip4);
	} else {
		LOAD(to[0], ctx->remote_ip6[0]);
		LOAD(to[1], ctx->remote_ip6[1]);
		LOAD(to[2], ctx->remote_ip6[2]);
		LOAD(to[3], ctx->remote_ip6[3]);
	}
}

INLINE int is_loopback(u32 a[4])
{
	if (a[0] || a[1])
		return 0;
	if (a[2] == FROM_NETWORK(0xffff))
		return (FROM_NETWORK(a[3]) >> 24) == 127;
	return !a[2] && a[3] == FROM_NETWORK(1);
}

INLINE int equal(u32 a[4], u32 b[4])
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

INLINE void serve(u32 address[4], u64 netns, u64 flags)
{
	struct address key = {{address[0], address[1], address[2], address[3]}};
	u64 *known = map_lookup(&here, &key);
	if (!known || (flags == ANY && *known != netns))
		map_update(&here, &key, &netns, flags);
}

/* A SYN has arrived. */
INLINE void asked(struct bpf_sock_ops *ctx)
{
	u32 local[4];
	local_of(ctx, local);
	if (!is_loopback(local))
		serve(local, namespace_cookie(ctx), ANY);
}

/* Fills in an end. It returns 0 if the socket must not be joined: its process sets the state of its
 * connection itself (TCP_REPAIR), so its sequence numbers prove nothing. */
INLINE int describe(struct bpf_sock_ops *ctx, struct end *e)
{
	if (!ctx->sk)
		return 0;
	struct tcp_sock *tcp = tcp_socket(ctx->sk);
	if (!tcp)
		return 0;
	u64 repair = 0;
	read_kernel(&repair, __builtin_preserve_field_info(tcp->repair, 1),
		    (void *)tcp + __builtin_preserve_field_info(tcp->repair, 0));
	repair <<= __builtin_preserve_field_info(tcp->repair, 4);
	repair >>= __builtin_preserve_field_info(tcp->repair, 5);
	if (repair)
		return 0;
	e->cookie = socket_cookie(ctx);
	e->socket = (u64)tcp;
	e->netns = namespace_cookie(ctx);
	local_of(ctx, e->local);
	remote_of(ctx, e->remote);
	e->local_port = ctx->local_port;
	e->remote_port = FROM_NETWORK(ctx->remote_port);
	e->mapped = 0;
	return 1;
}

INLINE int settle(struct bpf_sock_ops *ctx, u64 connection, u64 side, u64 *cookie)
{
	struct place place = {connection, side};
	if (!socket_storage(&places, ctx->sk, &place, CREATE))
		return 0;
	if (callbacks(ctx, WANT_STATES))
		return 0;
	return !socket_map_add(ctx, &sockets, cookie, ANY);
}

/* The SYN-ACK has arrived at the client. */
INLINE void connected(struct bpf_sock_ops *ctx)
{
	struct end e;
	if (!living() || !describe(ctx, &e) || is_loopback(e.remote))
		return;
	struct address to = {{e.remote[0], e.remote[1], e.remote[2], e.remote[3]}};
	u64 *server = map_lookup(&here, &to);
	if (server && *server == e.netns)
		return;
	u64 cookie = e.cookie;
	if (server && ctx->sk && settle(ctx, cookie, CLIENT, &cookie))
		e.mapped = 1;
	struct sequence key = {ctx->snd_nxt, ctx->rcv_nxt};
	map_update(&pending, &key, &e, NEW_ONLY);
}

/* The client's ACK has arrived at the server. */
INLINE void accepted(struct bpf_sock_ops *ctx)
{
	struct control *control = living();
	if (!control)
		return;
	struct sequence key = {ctx->rcv_nxt, ctx->snd_nxt};
	struct end *client = map_lookup(&pending, &key);
	if (!client)
		return;
	struct connection c = {};
	c.ends[CLIENT] = *client;
	map_delete(&pending, &key);
	if (!describe(ctx, &c.ends[SERVER]) || c.ends[CLIENT].netns == c.ends[SERVER].netns)
		return;
	serve(c.ends[CLIENT].remote, c.ends[SERVER].netns, NEW_ONLY);
	if (!c.ends[CLIENT].mapped)
		return;
	u16 port = c.ends[SERVER].local_port;
	u16 published = c.ends[CLIENT].remote_port;
	if (control->ports && !map_lookup(&ports, &port) && !map_lookup(&ports, &published))
		return;
	c.epoch = control->epoch;
	c.since_ns = now_ns();
	c.verified = equal(c.ends[CLIENT].local, c.ends[SERVER].remote) &&
		     equal(c.ends[CLIENT].remote, c.ends[SERVER].local) &&
		     c.ends[CLIENT].local_port == c.ends[SERVER].remote_port &&
		     c.ends[CLIENT].remote_port == c.ends[SERVER].local_port;
	c.ends[SERVER].mapped = 1;
	u64 id = c.ends[CLIENT].cookie, cookie = c.ends[SERVER].cookie;
	if (map_update(&connections, &id, &c, NEW_ONLY))
		return;
	if (!ctx->sk || !settle(ctx, id, SERVER, &cookie)) {
		map_delete(&connections, &id);
		return;
	}
	if (!c.verified)
		ring_output(&candidates, &id, sizeof(id), 0);
}

/* A socket is closed. */
INLINE void closed(struct bpf_sock_ops *ctx)
{
	if (!ctx->sk)
		return;
	struct place *place = socket_storage(&places, ctx->sk, 0, 0);
	if (!place)
		return;
	u64 id = place->connection;
	struct connection *c = map_lookup(&connections, &id);
	if (!c)
		return;
	c->closed[place->side & 1] = 1;
	/* If both ends close at once, each may miss the other. Then the daemon removes the connection. */
	if (c->closed[CLIENT] && c->closed[SERVER]) {
		u32 zero = 0;
		struct total *total = map_lookup(&totals, &zero);
		u64 bytes = c->directions[CLIENT].bytes + c->directions[SERVER].bytes;
		if (total && bytes) {
			__sync_fetch_and_add(&total->connections, 1);
			__sync_fetch_and_add(&total->bytes, bytes);
		}
		map_delete(&connections, &id);
		map_delete(&orders, &id);
	}
}

SECTION("sockops")
int establish(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case TIMEOUT_INIT:
		if (!ctx->is_fullsock)
			asked(ctx);
		break;
	case CONNECTED:
		connected(ctx);
		break;
	case ACCEPTED:
		accepted(ctx);
		break;
	case STATE_CHANGED:
		if (ctx->args[1] == TCP_CLOSE)
			closed(ctx);
		break;
	}
	return 1;
}

INLINE int by_tcp(struct direction *d)
{
	d->joined = 0;
	d->passed = 1;
	return 1;
}

INLINE int release(struct connection *c, u32 why)
{
	c->released = why;
	return 1;
}

/* Reports whether memory for sockets is scarce, on the machine or in the reader's cgroup. Then the kernel
 * may refuse joined bytes, and the sender would get an error; TCP waits. */
INLINE int is_scarce(struct tcp_sock *reader)
{
	struct proto *proto = 0;
	unsigned long *pressure = 0;
	unsigned long pressed = 0;
	READ(proto, reader, inet_conn.icsk_inet.sk.__sk_common.skc_prot);
	READ(pressure, proto, memory_pressure);
	read_kernel(&pressed, sizeof(pressed), pressure);
	if (pressed)
		return 1;
	struct sock *sk = &reader->inet_conn.icsk_inet.sk;
	struct mem_cgroup *group = 0;
	if (!EXISTS(sk, sk_memcg))
		return 0;
	READ(group, reader, inet_conn.icsk_inet.sk.sk_memcg);
	if (!group || !EXISTS(group, socket_pressure))
		return 0;
	u64 until = 0;
	READ(until, group, socket_pressure);
	return (long long)(jiffies() - until) < 0;
}

SECTION("sk_msg")
int choose(struct sk_msg_md *msg)
{
	struct place *place = socket_storage(&places, msg->sk, 0, 0);
	if (!place)
		return 1;
	u64 id = place->connection;
	struct connection *c = map_lookup(&connections, &id);
	if (!c || c->released)
		return 1;
	u32 zero = 0;
	struct control *control = map_lookup(&controls, &zero);
	if (!control)
		return 1;
	u64 now = now_ns();
	if (control->epoch != c->epoch)
		return release(c, RELEASED_BY_RULES);
	if (now - control->beat_ns > STALE_NS)
		return release(c, RELEASED_STALE);
	u32 *order = map_lookup(&orders, &id);
	if (order && *order == ORDER_RELEASE)
		return release(c, RELEASED_ORDER);
	if (!c->verified && !order)
		return 1;

	struct direction *d;
	struct end *end;
	if (place->side == CLIENT) {
		d = &c->directions[CLIENT];
		end = &c->ends[SERVER];
	} else {
		d = &c->directions[SERVER];
		end = &c->ends[CLIENT];
	}

	struct tcp_sock *sender = tcp_socket(msg->sk);
	if (!sender)
		return by_tcp(d);
	struct sock *sk = &sender->inet_conn.icsk_inet.sk;
	if (sk->sk_max_pacing_rate != WITHOUT_PACING)
		return release(c, RELEASED_PACED);
	if (sender->inet_conn.icsk_ulp_ops || (sk->__sk_common.skc_flags & (1UL << FLAG_BIT(SOCK_ZEROCOPY))))
		return release(c, RELEASED_KIND);
	u8 state = sk->__sk_common.skc_state;
	if ((state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT) || (sk->sk_shutdown & SENDS_NO_MORE))
		return by_tcp(d);

	struct tcp_sock *reader = (struct tcp_sock *)end->socket;
	u64 cookie = end->cookie;
	u64 found = 0;
	u32 copied = 0;
	s32 queued = 0, buffer = 0, least = 0;
	u8 shutdown = 0;
	void *layer = 0;
	READ(copied, reader, copied_seq);
	READ(queued, reader, inet_conn.icsk_inet.sk.sk_backlog.rmem_alloc.counter);
	READ(buffer, reader, inet_conn.icsk_inet.sk.sk_rcvbuf);
	READ(least, reader, inet_conn.icsk_inet.sk.sk_rcvlowat);
	READ(shutdown, reader, inet_conn.icsk_inet.sk.sk_shutdown);
	READ(layer, reader, inet_conn.icsk_ulp_ops);
	/* The cookie is read last: it is that of the socket from which the rest was read. */
	READ(found, reader, inet_conn.icsk_inet.sk.__sk_common.skc_cookie.counter);
	if (found != cookie || (shutdown & RECEIVES_NO_MORE))
		return by_tcp(d);
	if (layer || least > 1)
		return release(c, RELEASED_KIND);

	/* A joined message proves nothing about the way of packets, so one message goes by TCP now and then. When
	 * the reader has read it, the way is open. A new connection has just been made, which proves the same. */
	if (d->joined) {
		if (now - d->proved_ns > control->proof_ns)
			return by_tcp(d);
	} else {
		if (copied != sender->write_seq || (!d->passed && now - c->since_ns > control->proof_ns))
			return by_tcp(d);
		d->proved_ns = now;
	}
	if (queued < 0 || buffer < 0 || is_scarce(reader))
		return by_tcp(d);
	u64 size = msg->size;
	u64 used = (u32)queued, most = (u64)(u32)buffer * control->share >> 8;
	if (d->bytes - used >= d->mark_bytes || !used) {
		d->read_messages = used ? d->mark_messages : d->messages;
		d->mark_bytes = d->bytes;
		d->mark_messages = d->messages;
	}
	used += (d->messages - d->read_messages) * MESSAGE;
	if (used + size + MESSAGE > most) {
		d->full++;
		return by_tcp(d);
	}
	if (!redirect_message(msg, &sockets, &cookie, TO_INGRESS))
		return by_tcp(d);
	d->joined = 1;
	d->passed = 0;
	d->bytes += size;
	d->messages++;
	return 1;
}

/* Finds the ends of a connection whose sockets can leave `sockets`: bit 0 is the client, bit 1 the server. The
 * daemon runs this for connections that have been released. Such a socket has read all its joined bytes, and
 * nobody is sending at the other end: a sender may have chosen the queue before the release, and put the
 * message there much later. */
struct question {
	u64 connection;
};

/* The kernel's data of a socket in `sockets`, or 0 if the socket is closed or no longer there. */
INLINE struct sk_psock *psock_of(struct end *e)
{
	struct tcp_sock *tcp = (struct tcp_sock *)e->socket;
	u64 psock = 0, cookie = 0;
	READ(psock, tcp, inet_conn.icsk_inet.sk.sk_user_data);
	READ(cookie, tcp, inet_conn.icsk_inet.sk.__sk_common.skc_cookie.counter);
	return cookie == e->cookie ? (struct sk_psock *)(psock & POINTER_MASK) : 0;
}

INLINE int has_read(struct end *e)
{
	struct sk_psock *p = psock_of(e);
	struct list_head *next = 0;
	if (!p)
		return 1;
	struct list_head *head = __builtin_preserve_access_index(&p->ingress_msg);
	if (READ(next, head, next))
		return 0;
	return next == head;
}

/* A call that sends or reads holds a reference. The map holds one, too. As no socket leaves the map during
 * such a call, a socket that has left it has no psock. */
INLINE int is_quiet(struct end *e)
{
	struct sk_psock *p = psock_of(e);
	s32 references = 0;
	return !p || (!READ(references, p, refcnt.refs.counter) && references <= 1);
}

SECTION("syscall")
int drained(struct question *q)
{
	u64 id = q->connection;
	struct connection *c = map_lookup(&connections, &id);
	if (!c)
		return 3;
	if (!is_quiet(&c->ends[CLIENT]) || !is_quiet(&c->ends[SERVER]))
		return 0;
	return has_read(&c->ends[CLIENT]) | has_read(&c->ends[SERVER]) << 1;
}
