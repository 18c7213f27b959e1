//go:build ignore

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only

/* Attributes device I/O: counts bytes, pieces and time for each device, process and
 * cgroup.
 *
 * The owner is determined, and the bytes are counted, where a bio is queued
 * (block_bio_queue), because that runs in the thread that wants the I/O. Later a plug,
 * the I/O scheduler or a kernel worker may issue the request in any context, and
 * devices without requests (dm, md) have this tracepoint as well. A bio that the block
 * layer splits is announced once, as a whole. (Its end would be a better place to
 * count; but a bio that was part of a request ends without an event.)
 *
 * Device time is that of requests, from issue to completion, and belongs to the
 * owner of the request's first bio: the other bios of a request are neighbours on the
 * disk, and hardly ever have another owner. Owners are stored by the addresses of
 * their bios. The front part of a split bio is a separate bio with the address of the
 * rest in bi_private; that address is only looked up, never dereferenced.
 *
 * Latencies, from issue to completion too, are counted for each device and cgroup. The
 * cgroup is that of the request's first bio, except for the daemon's own requests, which
 * are counted together.
 *
 * Every map has a limit. Users that do not fit are counted together in `governed`, and
 * the latencies of cgroups that do not fit in `other_latencies`. The oldest bios and
 * requests are dropped, which loses time and no bytes. */
#include "kernel.h"

#define KERNEL_THREAD 0x00200000 /* PF_KTHREAD */
#define OPERATION 0xff           /* of bi_opf: 0 reads, 1 writes */

/* The cgroup of the daemon's requests; no cgroup has this id. */
#define OWN (~0ULL)

/* Latencies below 2^FIRST_OCTAVE ns are in bucket 0. Each octave above has four buckets of
 * equal width, and the last bucket has the rest: from 8.2 us to 17.2 s. */
#define FIRST_OCTAVE 13
#define LAST_OCTAVE 33
#define BUCKETS (1 + 4 * (LAST_OCTAVE - FIRST_OCTAVE + 1) + 1)

struct user_key {
	u64 cgroup; /* id; 0: not known to the kernel */
	u32 device; /* major << 20 | minor */
	u32 tgid;   /* 0: a kernel thread, known by its name */
	char name[16];
};

struct user_count {
	u64 pieces[2]; /* bios; read, written */
	u64 bytes[2];
	u64 time_ns[2];
	char comm[16]; /* of the process's first thread */
};

struct owner {
	struct user_key user;
	u64 write;
};

struct latency_key {
	u64 cgroup; /* id; 0: not known to the kernel; OWN */
	u64 device; /* as in user_key */
};

struct latency_count {
	u64 time_ns[2]; /* read, written */
	u64 reads[BUCKETS];
	u64 writes[BUCKETS];
};

struct issue {
	u64 since_ns;
	struct latency_key key;
	u64 write;
};

struct lost {
	u64 pieces;
	u64 bytes;
};

struct {
	MAP_INT(type, HASH_MAP);
	MAP_INT(max_entries, 256);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct lost);
} governed SECTION(".maps");

struct {
	MAP_INT(type, HASH_MAP);
	MAP_INT(max_entries, 4096);
	MAP_TYPE(key, struct user_key);
	MAP_TYPE(value, struct user_count);
} users SECTION(".maps");

struct {
	MAP_INT(type, LRU_HASH_MAP);
	MAP_INT(max_entries, 16384);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct owner);
} bios SECTION(".maps");

struct {
	MAP_INT(type, LRU_HASH_MAP);
	MAP_INT(max_entries, 16384);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct issue);
} issued SECTION(".maps");

struct {
	MAP_INT(type, HASH_MAP);
	MAP_INT(max_entries, 1024);
	MAP_TYPE(key, struct latency_key);
	MAP_TYPE(value, struct latency_count);
} latencies SECTION(".maps");

/* Has an entry for each device in `governed`, from the beginning. */
struct {
	MAP_INT(type, HASH_MAP);
	MAP_INT(max_entries, 256);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct latency_count);
} other_latencies SECTION(".maps");

/* One entry of zeros, to begin a new entry with: it does not fit on the stack. */
struct {
	MAP_INT(type, ARRAY_MAP);
	MAP_INT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct latency_count);
} no_latencies SECTION(".maps");

u32 own_tgid;

const char terms[] SECTION("license") = "GPL";

INLINE u32 device_of(struct bio *bio)
{
	struct gendisk *disk = bio->bi_bdev->bd_disk;
	return (u32)disk->major << 20 | (u32)disk->first_minor;
}

INLINE u64 cgroup_of(struct bio *bio)
{
	if (!__builtin_preserve_field_info(bio->bi_blkg, 2 /* exists */))
		return 0;
	return bio->bi_blkg->blkcg->css.cgroup->kn->id;
}

/* A kernel worker serves all processes, so its number has no meaning. */
INLINE void name_kernel_thread(struct user_key *user, struct task_struct *task)
{
	read_kernel_string(user->name, sizeof(user->name), task->comm);
	const char worker[] = "kworker/";
#pragma unroll
	for (int i = 0; i < 8; i++)
		if (user->name[i] != worker[i])
			return;
#pragma unroll
	for (int i = 7; i < 16; i++)
		user->name[i] = 0;
}

SECTION("tp_btf/block_bio_queue")
int bio_queued(u64 *ctx)
{
	struct bio *bio = (struct bio *)ctx[0];
	u32 device = device_of(bio);
	struct lost *lost = map_lookup(&governed, &device);
	if (!lost)
		return 0;
	u32 operation = bio->bi_opf & OPERATION;
	u32 bytes = bio->bi_iter.bi_size;
	if (operation > 1 || bytes == 0)
		return 0; /* no data: flush, discard */
	struct owner o = {};
	o.write = operation;
	o.user.device = device;
	o.user.cgroup = cgroup_of(bio);
	struct task_struct *task = current_task();
	if (task->flags & KERNEL_THREAD)
		name_kernel_thread(&o.user, task);
	else
		o.user.tgid = task->tgid;

	struct user_count *count = map_lookup(&users, &o.user);
	if (!count) {
		struct user_count none = {};
		map_update(&users, &o.user, &none, NEW_ONLY);
		count = map_lookup(&users, &o.user);
	}
	u64 key = (u64)bio;
	if (!count) {
		map_delete(&bios, &key); /* what an earlier bio at this address left */
		__sync_fetch_and_add(&lost->pieces, 1);
		__sync_fetch_and_add(&lost->bytes, bytes);
		return 0;
	}
	if (!(task->flags & KERNEL_THREAD))
		read_kernel_string(count->comm, sizeof(count->comm), task->group_leader->comm);
	u32 i = operation & 1;
	__sync_fetch_and_add(&count->pieces[i], 1);
	__sync_fetch_and_add(&count->bytes[i], bytes);
	map_update(&bios, &key, &o, ANY);
	return 0;
}

INLINE struct owner *owner_of(struct request *rq)
{
	struct bio *bio = rq->bio;
	u64 key = (u64)bio;
	struct owner *o = map_lookup(&bios, &key);
	if (o || !bio)
		return o;
	key = (u64)bio->bi_private;
	return map_lookup(&bios, &key);
}

SECTION("tp_btf/block_rq_issue")
int request_issued(u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct bio *bio = rq->bio;
	if (!bio)
		return 0;
	u32 device = device_of(bio);
	u32 operation = bio->bi_opf & OPERATION;
	if (!map_lookup(&governed, &device) || operation > 1 || bio->bi_iter.bi_size == 0)
		return 0;
	struct issue issue = {};
	issue.since_ns = now_ns();
	issue.key.device = device;
	issue.write = operation;
	struct owner *o = owner_of(rq);
	if (o && o->user.tgid && o->user.tgid == own_tgid)
		issue.key.cgroup = OWN;
	else
		issue.key.cgroup = cgroup_of(bio);
	u64 key = (u64)rq;
	map_update(&issued, &key, &issue, ANY);
	return 0;
}

INLINE u32 bucket_of(u64 ns)
{
	if (ns >> (LAST_OCTAVE + 1))
		return BUCKETS - 1;
	u32 octave = 0;
	u64 rest = ns;
#pragma unroll
	for (u32 step = 32; step > 0; step /= 2) {
		if (rest >> step) {
			octave += step;
			rest >>= step;
		}
	}
	if (octave < FIRST_OCTAVE)
		return 0;
	return 1 + 4 * (octave - FIRST_OCTAVE) + ((ns >> (octave - 2)) & 3);
}

INLINE void count_latency(struct issue *issue, u64 time)
{
	struct latency_key key = issue->key;
	struct latency_count *count = map_lookup(&latencies, &key);
	if (!count) {
		u32 zero = 0;
		struct latency_count *none = map_lookup(&no_latencies, &zero);
		if (none)
			map_update(&latencies, &key, none, NEW_ONLY);
		count = map_lookup(&latencies, &key);
	}
	if (!count) {
		u32 device = key.device;
		count = map_lookup(&other_latencies, &device);
	}
	if (!count)
		return;
	u32 bucket = bucket_of(time);
	if (bucket >= BUCKETS)
		return;
	__sync_fetch_and_add(&count->time_ns[issue->write & 1], time);
	if (issue->write)
		__sync_fetch_and_add(&count->writes[bucket], 1);
	else
		__sync_fetch_and_add(&count->reads[bucket], 1);
}

SECTION("tp_btf/block_rq_complete")
int request_completed(u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	u64 key = (u64)rq;
	struct issue *found = map_lookup(&issued, &key);
	if (!found)
		return 0;
	struct issue issue = *found;
	u64 time = now_ns() - issue.since_ns;
	map_delete(&issued, &key);
	count_latency(&issue, time);
	struct owner *o = owner_of(rq);
	if (!o)
		return 0;
	struct user_count *count = map_lookup(&users, &o->user);
	if (count)
		__sync_fetch_and_add(&count->time_ns[o->write & 1], time);
	return 0;
}

/* The daemon runs this once, to store its own process number as the programs above
 * see it. In a container the daemon itself sees another number. */
SECTION("syscall")
int tell_own(void *ctx)
{
	own_tgid = current_pid_tgid() >> 32;
	return 0;
}
