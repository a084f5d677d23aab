/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is remembered of a task and of a CPU.
 *
 * A task's context is written under its rq lock (or pi lock, in select_cpu); a
 * CPU's by that CPU or under its rq lock, but for @invited_by, which says so.
 */
#ifndef __RETUNE_CTX_H
#define __RETUNE_CTX_H

struct task_ctx {
	u64 vtime; /* virtual run time, on the base of @queue */
	u64 exec_at; /* sum_exec_runtime when it began to run */
	u64 stopped_at; /* ns; how cache-hot it is */
	u64 waiting_as; /* what it added to its queue's load word, 0: not waiting */
	u64 woken_at; /* ns, 0: it has run since */
	u64 busy_at; /* ns; when it last woke or went to sleep */
	u64 flips_decay_at; /* ns */
	u32 busy; /* of BUSY_ONE; how much of its time it is runnable */
	u32 flips; /* how often it woke another task than the last time */
	s32 last_wakee; /* pid */
	u32 queue; /* whose base @vtime is on */
	u32 waits_in; /* the queue that counts it, while @waiting_as is set */
	s32 last_cpu; /* where it last ran, -1: nowhere yet */
	s32 recent_cpu; /* where it ran before it moved to @last_cpu */
	u8 woken_level; /* between waker and chosen CPU; NR_LEVELS: the same CPU */
	bool waits_pinned;
	bool behind_waker; /* woken by a lone waker that is about to sleep */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

static struct task_ctx *tctx_of(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, 0, 0);
}

/* What a CPU has learnt of its own new-idle tries at one level. */
struct newidle_ctx {
	u64 cost_ns; /* the most expensive try of late */
	u64 decay_at; /* ns */
	u16 nr_tries;
	u16 nr_weighted; /* successes, weighted by the dice */
	u16 ratio; /* of 1024 */
	u16 nr_failed; /* in a row; hot tasks move once it passes the level's patience */
};

struct cpu_ctx {
	u64 curr_deadline; /* of the task that runs, 0: none of ours */
	u64 preempted_at; /* ns; the last wakeup preemption */
	u64 idle_at; /* ns */
	u64 avg_idle_ns; /* average length of its idle periods */
	u64 busy; /* decayed average of the weight that it ran */
	u64 busy_at; /* ns; when @busy was brought up to date */
	u64 seen_at; /* ns; when one of our tasks last ran or ticked here */
	u32 curr_weight; /* of the task that runs, 0: none of ours */
	u32 invited_by; /* queue + 1; written by the inviter, which holds the idle claim */
	u32 scan_start; /* rotates, so that pullers spread over the queues */
	bool saw_no_hint; /* dispatch found its cache's hints clear */
	struct newidle_ctx newidle[NR_LEVELS];
} __attribute__((aligned(128)));

struct cpu_ctx RESIZABLE_ARRAY(data, cpu_ctxs);

static struct cpu_ctx *cctx_of(s32 cpu)
{
	return ARRAY_ELEM_PTR(cpu_ctxs, cpu, nr_cpu_ids);
}

/* Return true if only one CPU may run @p: pinned, or inside migrate_disable(). */
static bool is_pinned(const struct task_struct *p)
{
	return p->nr_cpus_allowed == 1 || is_migration_disabled(p);
}

static bool is_percpu_kthread(const struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

static bool is_allowed(const struct task_struct *p, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

#endif /* __RETUNE_CTX_H */
