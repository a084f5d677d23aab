// SPDX-License-Identifier: GPL-2.0-only
/*
 * scx_retune: the kernel's scheduling domains, with flags that turn while it runs.
 *
 * Each CPU has one 64-bit word: a bit per flag and level. WAKE_AFFINE is read from
 * the waker's word when a task wakes, BALANCE_NEWIDLE from the puller's when a CPU
 * runs dry. The loader writes the words; nothing else has to happen for a flag to
 * change. The shape is the kernel's: one run queue per CPU, ordered by weighted
 * virtual deadline, and tasks move by wakeups, by idle CPUs that pull, and by
 * waiting tasks that invite idle CPUs.
 *
 * Not for machines that want a latency policy of their own (scx_lavd), cgroup CPU
 * shares, or exec balancing, which the kernel never hands to a BPF scheduler.
 *
 * Files: domain (places, levels, words), ctx (task and CPU), queue (waiting, order,
 * hints), idle (finding idle CPUs), wake (WAKE_AFFINE), balance (NEWIDLE and
 * invitations), stat (counters). Callbacks below are in life-cycle order; the ops
 * table at the end is the index.
 */
#include <scx/common.bpf.h>
#include "intf.h"

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

#define NSEC_PER_SEC 1000000000ULL
#define MIGRATION_COST_NS 500000 /* kernel: sysctl_sched_migration_cost */
#define AVG_IDLE_CAP_NS (2 * MIGRATION_COST_NS) /* kernel: 2 x max_idle_balance_cost */
#define DICE 1024 /* kernel: NI_RANDOM's range */
#define TICK_NS 4000000 /* chosen: HZ=250; how long an invitation may be under way */
#define BACKSTOP_NS 100000000 /* chosen: well under the watchdog, seldom enough to cost nothing */
#define NR_QUEUES_READ 8 /* chosen: bounds the remote lines that one try reads */
#define NR_TASKS_WALKED 8 /* chosen: each step takes the DSQ's lock */
#define NR_CANDIDATES 4 /* chosen: bounds the words that one invitation reads */

const volatile u32 nr_cpu_ids = 1;
const volatile u32 nr_llcs = 1;
const volatile u32 nr_queues = 1;
const volatile u32 nr_groups = 1;
const volatile u32 nr_nodes = 1;
const volatile bool per_node_idle;
const volatile bool smt;
const volatile u32 fault; /* enum retune_fault, for tests only */
/* EVDF's base slice on 8 CPUs and more: 0.7 ms x (1 + log2(8)). */
const volatile u64 slice_ns = 2800000;

#include "domain.bpf.h"
#include "stat.bpf.h"
#include "ctx.bpf.h"
#include "queue.bpf.h"
#include "idle.bpf.h"
#include "wake.bpf.h"
#include "balance.bpf.h"

/* ---- a task wakes ---- */

/* Claim an idle CPU near @target, whole cores first where cores have threads. */
static s32 claim_idle_cpu(const struct task_struct *p, const struct task_ctx *tctx, s32 target, s32 prev)
{
	s32 cpu = -EBUSY;

	if (smt)
		cpu = claim_idle_near(p, tctx, target, prev, true);
	return cpu >= 0 ? cpu : claim_idle_near(p, tctx, target, prev, false);
}

s32 BPF_STRUCT_OPS(retune_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 this_cpu = bpf_get_smp_processor_id(), target = prev_cpu, cpu;
	const struct cpu_place *here = place_of(this_cpu);
	struct task_ctx *tctx = tctx_of(p);
	bool sync_and_alone = false;

	count(CNT_SELECT_CPU);
	if (!tctx || !here)
		goto busy;
	if (wake_flags & SCX_WAKE_TTWU) {
		sync_and_alone = is_sync_and_alone(wake_flags, this_cpu, here);
		target = pick_side(p, this_cpu, prev_cpu, sync_and_alone);
	}
	tctx->behind_waker = sync_and_alone && target == this_cpu;
	cpu = claim_idle_cpu(p, tctx, target, prev_cpu);
	if (cpu >= 0) {
		count_wakeup(this_cpu, cpu);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
		return cpu;
	}
	count_wakeup(this_cpu, target);
busy:
	count(CNT_SELECT_BUSY);
	return target;
}

/* ---- a task waits ---- */

/* Return true if @p should not wait for the task that runs on @cpu, whose rq is locked. */
static bool should_preempt(const struct task_struct *p, const struct task_ctx *tctx, struct cpu_ctx *cctx,
			   u64 enq_flags)
{
	u64 now = scx_bpf_now();

	if (!(enq_flags & SCX_ENQ_WAKEUP) || tctx->behind_waker || !cctx->curr_deadline ||
	    !time_before(deadline_of(p, tctx), cctx->curr_deadline) ||
	    time_before(now, cctx->preempted_at + slice_ns))
		return false;
	cctx->preempted_at = now;
	return true;
}

/* Bring @p's virtual time up to date for a stay in @queue. */
static void place_in_time(const struct task_struct *p, struct task_ctx *tctx, struct queue *q, u32 queue,
			  u64 enq_flags)
{
	rebase_vtime(p, tctx, queue);
	if (enq_flags & SCX_ENQ_WAKEUP)
		bound_sleeper(p, tctx, q);
}

/* Let @p wait in @queue, and invite a CPU of the cache for it. */
static void wait_in_queue(struct task_struct *p, struct task_ctx *tctx, struct queue *q, u32 queue,
			  const struct cpu_place *place, u64 enq_flags)
{
	struct waiter w = { .p = p, .place = place, .queue = queue };
	bool pinned = is_pinned(p);

	begin_wait(p, tctx, q, queue, pinned);
	if (pinned) {
		count(CNT_ENQ_PINNED);
	} else {
		count(CNT_ENQ_QUEUED);
		hint_overloaded(queue);
		if (!tctx->behind_waker)
			invite_in_llc(&w, q, scx_bpf_now());
	}
	tctx->behind_waker = false;
	scx_bpf_dsq_insert_vtime(p, queue, slice_ns, deadline_of(p, tctx), enq_flags);
}

void BPF_STRUCT_OPS(retune_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	const struct cpu_place *place = place_of(cpu);
	struct task_ctx *tctx = tctx_of(p);
	struct cpu_ctx *cctx = cctx_of(cpu);
	struct queue *q;

	count(CNT_ENQUEUE);
	if (is_percpu_kthread(p) || (fault == FAULT_PINNED_TO_LOCAL && is_pinned(p))) {
		count(CNT_ENQ_KTHREAD);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		return;
	}
	if (!place || !tctx || !cctx || !(q = queue_of(place->queue))) {
		scx_bpf_error("CPU %d or task %d is not known", cpu, p->pid);
		return;
	}
	place_in_time(p, tctx, q, place->queue, enq_flags);
	/* A task that select_cpu never saw may find its CPU idle; the claim is ours to use. */
	if (is_allowed(p, cpu) && scx_bpf_test_and_clear_cpu_idle(cpu)) {
		count(CNT_ENQ_IDLE);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		return;
	}
	if (should_preempt(p, tctx, cctx, enq_flags)) {
		count(CNT_ENQ_PREEMPT);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	wait_in_queue(p, tctx, q, place->queue, place, enq_flags);
}

/* ---- a CPU wants a task ---- */

/* Return the deadline of the first task that waits in @queue, 0 if none does. */
static u64 head_deadline(u32 queue)
{
	struct task_struct *p;
	u64 deadline = 0;

	if (bpf_ksym_exists(scx_bpf_dsq_peek)) {
		bpf_rcu_read_lock();
		p = scx_bpf_dsq_peek(queue);
		deadline = p ? p->scx.dsq_vtime : 0;
		bpf_rcu_read_unlock();
		return deadline;
	}
	bpf_for_each(scx_dsq, p, queue, 0) {
		deadline = p->scx.dsq_vtime;
		break;
	}
	return deadline;
}

/* Return true if @prev, which is still runnable, comes before all that wait in @queue. */
static bool keeps_running(struct task_struct *prev, struct cpu_ctx *cctx, u32 queue)
{
	struct task_ctx *tctx = tctx_of(prev);
	u64 head = head_deadline(queue), ran;

	if (!head || !tctx)
		return !head;
	ran = prev->se.sum_exec_runtime - tctx->exec_at;
	return time_before(deadline_of(prev, tctx) + scale_by_weight(prev, ran), head);
}

void BPF_STRUCT_OPS(retune_dispatch, s32 cpu, struct task_struct *prev)
{
	const struct cpu_place *place = place_of(cpu);
	struct cpu_ctx *cctx = cctx_of(cpu);

	count(CNT_DISPATCH);
	if (!place || !cctx)
		return;
	if (prev && prev->scx.flags & SCX_TASK_QUEUED && keeps_running(prev, cctx, place->queue)) {
		/* Otherwise the kernel would give it 20 ms (SCX_SLICE_DFL). */
		scx_bpf_task_set_slice(prev, slice_ns);
		count(CNT_DISP_KEPT);
		return;
	}
	if (scx_bpf_dsq_move_to_local(place->queue, 0)) {
		count(CNT_DISP_OWN);
		return;
	}
	if (prev && prev->scx.flags & SCX_TASK_QUEUED) {
		scx_bpf_task_set_slice(prev, slice_ns);
		count(CNT_DISP_KEPT);
		return;
	}
	if (newidle_balance(cpu)) {
		count(CNT_DISP_PULLED);
		return;
	}
	count(CNT_DISP_NOTHING);
}

/* ---- a task runs ---- */

/* Count where a task that waited in @waited_in began to run. */
static void count_run(u32 waited_in, const struct cpu_place *here)
{
	const struct queue_place *qplace = queue_place_of(waited_in);
	const struct cpu_place *there;

	if (waited_in == here->queue)
		count(CNT_RUN_OWN);
	else if (qplace && (there = place_of(qplace->cpu)))
		count_at(common_level(here, there), LCNT_RUN_ELSEWHERE);
}

/* Remember where @p runs, and count its move at the level that it crossed. */
static void note_cpu(struct task_ctx *tctx, s32 cpu, const struct cpu_place *here)
{
	const struct cpu_place *last;

	if (tctx->last_cpu == cpu)
		return;
	last = place_of(tctx->last_cpu);
	if (last)
		count_at(common_level(here, last), LCNT_MIGRATED);
	tctx->recent_cpu = tctx->last_cpu;
	tctx->last_cpu = cpu;
}

void BPF_STRUCT_OPS(retune_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	const struct cpu_place *here = place_of(cpu);
	struct task_ctx *tctx = tctx_of(p);
	struct cpu_ctx *cctx = cctx_of(cpu);
	struct queue *q;
	u32 waited_in;

	if (!here || !tctx || !cctx || !(q = queue_of(here->queue)))
		return;
	waited_in = tctx->waits_in;
	if (end_wait(tctx))
		count_run(waited_in, here);
	note_cpu(tctx, cpu, here);
	rebase_vtime(p, tctx, here->queue);
	advance_vnow(q, tctx->vtime);
	tctx->exec_at = p->se.sum_exec_runtime;
	cctx->curr_deadline = deadline_of(p, tctx);
}

void BPF_STRUCT_OPS(retune_tick, struct task_struct *p)
{
	const struct cpu_place *place = place_of(scx_bpf_task_cpu(p));
	struct queue *q = place ? queue_of(place->queue) : NULL;

	if (!q || !has_movable(q))
		return;
	count(CNT_TICK_OVERLOADED);
	invite_for_queue(place->queue, scx_bpf_now());
}

void BPF_STRUCT_OPS(retune_stopping, struct task_struct *p, bool runnable)
{
	struct cpu_ctx *cctx = cctx_of(scx_bpf_task_cpu(p));
	struct task_ctx *tctx = tctx_of(p);

	if (!tctx)
		return;
	tctx->vtime += scale_by_weight(p, p->se.sum_exec_runtime - tctx->exec_at);
	tctx->exec_at = p->se.sum_exec_runtime;
	tctx->stopped_at = scx_bpf_now();
	if (cctx)
		cctx->curr_deadline = 0;
}

void BPF_STRUCT_OPS(retune_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task_ctx *tctx = tctx_of(p);

	if (tctx)
		abandon_wait(tctx);
}

/* ---- a CPU idles ---- */

/* Return true if a hint has come up in @place's cache since dispatch found none. */
static bool missed_a_hint(const struct cpu_ctx *cctx, const struct cpu_place *place)
{
	const struct llc_place *llc = llc_of(place->llc);
	struct hints *hints = llc ? group_hints_of(llc->first_group) : NULL;

	return cctx->saw_no_hint && hints && READ_ONCE(hints->word);
}

void BPF_STRUCT_OPS(retune_update_idle, s32 cpu, bool idle)
{
	const struct cpu_place *place = place_of(cpu);
	struct cpu_ctx *cctx = cctx_of(cpu);
	struct queue *q;

	if (!place || !cctx || !(q = queue_of(place->queue)))
		return;
	if (!idle) {
		note_idle_end(cctx, scx_bpf_now());
		return;
	}
	cctx->idle_at = scx_bpf_now();
	/* Pairs with begin_wait(): see the head of queue.bpf.h. */
	if (has_waiting(q) || missed_a_hint(cctx, place))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* ---- the backstop ---- */

struct backstop {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct backstop);
} backstops SEC(".maps");

/*
 * Invite for every queue that has a hint. The ticks do this all the time; the
 * timer is for CPUs that get no ops.tick(), because a real-time task holds them.
 */
static int walk_backstop(void *map, u32 *key, struct backstop *backstop)
{
	u64 now = bpf_ktime_get_ns();
	u32 queue;

	count_from_timer(CNT_BACKSTOP_WALKS);
	bpf_for(queue, 0, nr_queues)
		invite_for_queue(queue, now);
	bpf_timer_start(&backstop->timer, BACKSTOP_NS, 0);
	return 0;
}

static int start_backstop(void)
{
	struct backstop *backstop;
	u32 zero = 0;
	int err;

	backstop = bpf_map_lookup_elem(&backstops, &zero);
	if (!backstop)
		return -ENOENT;
	err = bpf_timer_init(&backstop->timer, &backstops, CLOCK_MONOTONIC);
	if (err)
		return err;
	bpf_timer_set_callback(&backstop->timer, walk_backstop);
	return bpf_timer_start(&backstop->timer, BACKSTOP_NS, 0);
}

/* ---- life of a task, life of the scheduler ---- */

s32 BPF_STRUCT_OPS(retune_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *tctx = bpf_task_storage_get(&task_ctxs, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!tctx)
		return -ENOMEM;
	tctx->last_cpu = -1;
	tctx->recent_cpu = -1;
	return 0;
}

void BPF_STRUCT_OPS(retune_enable, struct task_struct *p)
{
	const struct cpu_place *place = place_of(scx_bpf_task_cpu(p));
	struct task_ctx *tctx = tctx_of(p);
	struct queue *q;

	if (!place || !tctx || !(q = queue_of(place->queue)))
		return;
	tctx->queue = place->queue;
	tctx->vtime = READ_ONCE(q->vnow);
}

void BPF_STRUCT_OPS(retune_disable, struct task_struct *p)
{
	struct task_ctx *tctx = tctx_of(p);

	if (tctx)
		abandon_wait(tctx);
}

void BPF_STRUCT_OPS(retune_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task_ctx *tctx = tctx_of(p);

	if (tctx)
		abandon_wait(tctx);
}

static s32 create_queues(void)
{
	u32 queue;
	s32 err;

	bpf_for(queue, 0, nr_queues) {
		const struct queue_place *place = queue_place_of(queue);
		const struct cpu_place *cpu = place ? place_of(place->cpu) : NULL;

		if (!cpu)
			return -ENOENT;
		err = scx_bpf_create_dsq(queue, node_id_of(cpu));
		if (err)
			return err;
	}
	return 0;
}

/* Begin as the kernel does (sd_init(), sched_init()): half of the tries succeed, CPUs idle long. */
static void init_cpu_ctxs(void)
{
	s32 cpu;

	bpf_for(cpu, 0, nr_cpu_ids) {
		struct cpu_ctx *cctx = cctx_of(cpu);
		u32 level;

		if (!cctx)
			return;
		cctx->avg_idle_ns = AVG_IDLE_CAP_NS;
		for (level = 0; level < NR_LEVELS; level++) {
			cctx->newidle[level].nr_tries = DICE / 2;
			cctx->newidle[level].nr_weighted = DICE / 4;
			cctx->newidle[level].ratio = DICE / 2;
		}
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(retune_init)
{
	s32 err;

	init_cpu_ctxs();
	if ((err = create_queues()) || (err = create_masks()) || (err = fill_llc_masks()))
		return err;
	return start_backstop();
}

void BPF_STRUCT_OPS(retune_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* ---- when something went wrong ---- */

void BPF_STRUCT_OPS(retune_dump, struct scx_dump_ctx *dctx)
{
	scx_bpf_dump("flag generation %llu, %u queues", flag_generation(), nr_queues);
}

void BPF_STRUCT_OPS(retune_dump_cpu, struct scx_dump_ctx *dctx, s32 cpu, bool idle)
{
	const struct cpu_place *place = place_of(cpu);
	struct queue *q = place ? queue_of(place->queue) : NULL;

	if (q)
		scx_bpf_dump("flags %016llx queue %u: %llu movable, %llu pinned, base %llu", flag_word(cpu),
			     place->queue, q->movable >> LOAD_SHIFT, q->pinned >> LOAD_SHIFT, q->vnow);
}

SCX_OPS_DEFINE(retune_ops,
	       .select_cpu	= (void *)retune_select_cpu,
	       .enqueue		= (void *)retune_enqueue,
	       .dispatch	= (void *)retune_dispatch,
	       .running		= (void *)retune_running,
	       .tick		= (void *)retune_tick,
	       .stopping	= (void *)retune_stopping,
	       .quiescent	= (void *)retune_quiescent,
	       .update_idle	= (void *)retune_update_idle,
	       .init_task	= (void *)retune_init_task,
	       .enable		= (void *)retune_enable,
	       .disable		= (void *)retune_disable,
	       .exit_task	= (void *)retune_exit_task,
	       .init		= (void *)retune_init,
	       .exit		= (void *)retune_exit,
	       .dump		= (void *)retune_dump,
	       .dump_cpu	= (void *)retune_dump_cpu,
	       .name		= "retune");
