/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the BPF side and the loader agree on: the flag word, the tables that the
 * loader fills before load, and the counters that it reads while running.
 *
 * Tables are resizable arrays: one element here, sized by the loader. Everything
 * in them is read-only after load, except the flag words, which only the loader
 * writes, and the counters, which only BPF writes.
 */
#ifndef __RETUNE_INTF_H
#define __RETUNE_INTF_H

#ifndef __VMLINUX_H__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
#endif

/* A level's index is its bit in each flag's part of the word. */
enum retune_level {
	LEVEL_SMT,
	LEVEL_CLS,
	LEVEL_MC,
	LEVEL_PKG,
	LEVEL_NUMA1,
	NR_LOCAL_LEVELS = LEVEL_NUMA1,
	NR_LEVELS = 10,
	LEVEL_NONE = 255,
};

/* bit of the word = flag * NR_LEVELS + level */
enum retune_flag {
	FLAG_WAKE_AFFINE,
	FLAG_BALANCE_NEWIDLE,
	FLAG_BALANCE_FORK,
	FLAG_BALANCE_WAKE,
	FLAG_BALANCE_EXEC,
	FLAG_LOAD_BALANCE,
	NR_FLAGS,
};

/*
 * Where a CPU is: 16 bytes, so that four CPUs share a line that nobody writes.
 * @dom holds the CPU's domain at each level below NUMA. Equal ids mean the same
 * domain; a CPU without that level has an id of its own there.
 */
struct cpu_place {
	u16 dom[NR_LOCAL_LEVELS];
	u16 node; /* dense index of nodes with CPUs, not the kernel's id */
	u16 llc;
	u16 queue;
	u16 levels; /* bit per level that this CPU's domains have */
};

struct llc_place {
	u16 node;
	u16 nr_cpus;
	u16 first_group;
	u16 nr_groups;
};

/*
 * Queues are numbered by node, last-level cache and group; a group is at most 64
 * queues of one cache, because its overload hints are one word. Groups of a node
 * are contiguous, and there are at most 64 of them for the same reason.
 */
struct queue_place {
	u16 cpu; /* its first CPU */
	u16 llc;
	u16 group;
	u16 bit; /* in the group's word */
	u16 first_member; /* its CPUs are queue_cpus[first_member ..] */
	u16 nr_cpus;
};

struct group_place {
	u16 first_queue;
	u16 node;
	u16 llc;
	u16 bit; /* in the node's word */
};

struct node_place {
	u16 id; /* the kernel's */
	u16 first_group;
	u16 nr_groups;
	u16 nr_cpus;
};

/*
 * Rules broken on purpose, one at a time: the negative controls of the VM tests.
 * The value is constant after load, so the verifier drops the branches.
 */
enum retune_fault {
	FAULT_NONE,
	FAULT_PINNED_TO_LOCAL, /* single-CPU tasks go to the local DSQ */
	FAULT_NO_INVITATIONS, /* a task that waits invites nobody */
	FAULT_FLAGS_IGNORED, /* every level has every flag */
	FAULT_MISCOUNT, /* one exit in 256 is not counted */
	FAULT_NO_ORDER, /* first come, first served */
	FAULT_NO_SLEEPER_BOUND, /* sleepers keep all their credit */
	FAULT_NO_PREEMPTION,
	FAULT_NO_RESCUE,
	FAULT_NEVER_WIDE,
	FAULT_NO_WEIGHT_RULE,
	FAULT_NO_GATES, /* new idle: cost, dice, hotness */
	FAULT_NO_HINTS, /* pullers read every queue */
};

/* Counters of one CPU. docs/stats.md says what each one means. */
enum cpu_counter {
	/* select_cpu: calls = the six exits */
	CNT_SELECT_CPU,
	CNT_SELECT_IDLE_TARGET,
	CNT_SELECT_IDLE_PREV,
	CNT_SELECT_IDLE_RECENT,
	CNT_SELECT_IDLE_LLC,
	CNT_SELECT_IDLE_FAR,
	CNT_SELECT_BUSY,
	CNT_TTWU_LOCAL,
	/* enqueue: calls = the five exits */
	CNT_ENQUEUE,
	CNT_ENQ_KTHREAD,
	CNT_ENQ_IDLE,
	CNT_ENQ_PREEMPT,
	CNT_ENQ_QUEUED,
	CNT_ENQ_PINNED,
	/* dispatch: calls = the four exits */
	CNT_DISPATCH,
	CNT_DISP_KEPT,
	CNT_DISP_OWN,
	CNT_DISP_PULLED,
	CNT_DISP_NOTHING,
	/* tasks: waits begun = run own + run elsewhere + removed + waiting now */
	CNT_WAIT_BEGUN,
	CNT_RUN_OWN,
	CNT_WAIT_REMOVED,
	CNT_TICK_OVERLOADED,
	CNT_INVITED,
	CNT_REENQUEUED,
	CNT_BACKSTOP_WALKS,
	NR_CPU_COUNTERS,
};

enum { NR_LATENCY_BUCKETS = 20 };

/* Counters of one CPU at one level. */
enum level_counter {
	LCNT_TTWU_WAKE_REMOTE,
	LCNT_AFFINE_ATTEMPTS,
	LCNT_TTWU_MOVE_AFFINE,
	LCNT_AFFINE_FLAG_OFF,
	LCNT_AFFINE_WIDE,
	LCNT_AFFINE_BY_WEIGHT,
	LCNT_SBF_PUSHED,
	LCNT_SBW_PUSHED,
	/* newidle: tries = gained + failed + no busy queue + cost + dice */
	LCNT_LB_COUNT,
	LCNT_LB_GAINED,
	LCNT_LB_FAILED,
	LCNT_LB_NOBUSYQ,
	LCNT_LB_COST,
	LCNT_LB_DICE,
	LCNT_LB_FLAG_OFF,
	LCNT_LB_QUEUES_READ,
	LCNT_LB_HOT_GAINED,
	LCNT_REFUSED_HOT,
	LCNT_REFUSED_AFFINITY,
	LCNT_REFUSED_PREFERRED,
	LCNT_INVITES,
	LCNT_INVITE_FLAG_OFF,
	LCNT_RUN_ELSEWHERE,
	LCNT_RESCUED,
	LCNT_MIGRATED,
	NR_LEVEL_COUNTERS,
};

/*
 * One row for each CPU, written only by that CPU with interrupts off, so plain
 * increments do. One more row at the end belongs to the timer, which counts with
 * atomics because it may be interrupted.
 */
struct cpu_stat {
	u64 cpu[NR_CPU_COUNTERS];
	u64 level[NR_LEVEL_COUNTERS][NR_LEVELS];
	/*
	 * Time from wakeup to run: bucket b counts [2^(b-1), 2^b) us, the first less
	 * than 1 us, the last all that is longer. By the level between the waker's
	 * CPU and the chosen one; the last row is for one and the same CPU.
	 */
	u64 latency[NR_LEVELS + 1][NR_LATENCY_BUCKETS];
} __attribute__((aligned(128)));

#endif /* __RETUNE_INTF_H */
