// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only

/* The parts of the kernel that blockio.c needs: only the fields that it reads.
 *
 * Each struct lacks most of its fields on purpose. With preserve_access_index, the
 * loader finds the fields in the running kernel by its BTF, so that one object works
 * with all kernels that have fields of these names. The numbers of the helpers and map
 * types are part of the kernel's stable interface. */
#ifndef PENSTOCK_KERNEL_H
#define PENSTOCK_KERNEL_H

typedef unsigned char u8;
typedef int s32;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define MAP_INT(name, value) int (*name)[value]
#define MAP_TYPE(name, value) value *name
#define INLINE static inline __attribute__((always_inline))

enum { HASH_MAP = 1, ARRAY_MAP = 2, LRU_HASH_MAP = 9 };
enum { ANY = 0, NEW_ONLY = 1 };

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*now_ns)(void) = (void *)5;
static u64 (*current_pid_tgid)(void) = (void *)14;
static long (*read_kernel_string)(void *to, u32 size, const void *from) = (void *)115;
static struct task_struct *(*current_task)(void) = (void *)158;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct {
	u32 flags;
	s32 tgid;
	struct task_struct *group_leader;
	char comm[16];
};

struct kernfs_node {
	u64 id;
};
struct cgroup {
	struct kernfs_node *kn;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
};
struct blkcg {
	struct cgroup_subsys_state css;
};
struct blkcg_gq {
	struct blkcg *blkcg;
};

struct gendisk {
	s32 major;
	s32 first_minor;
};
struct block_device {
	struct gendisk *bd_disk;
};
struct bvec_iter {
	u32 bi_size;
};
struct bio {
	struct block_device *bi_bdev;
	u32 bi_opf;
	struct bvec_iter bi_iter;
	void *bi_private;
	struct blkcg_gq *bi_blkg;
};
struct request {
	struct bio *bio;
};

#pragma clang attribute pop

#endif
