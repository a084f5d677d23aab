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
 * hints), load (what CPUs and tasks weigh), idle (finding idle CPUs), wake
 * (WAKE_AFFINE), spread (FORK and WAKE), search (which queue to pull from), invite
 * (waking idle CPUs for those who wait), balance (NEWIDLE), backstop (the timer), stat
 * (counters). Callbacks below are in life-cycle order; the ops
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
#define UNSERVED_NS 500000000 /* chosen: far beyond any slice, far before the watchdog (30 s) */
#define BACKSTOP_NS 100000000 /* chosen: well under the watchdog, seldom enough to cost nothing */
#define NR_QUEUES_READ 8 /* chosen: bounds the remote lines that one try reads */
#define NR_TASKS_WALKED 8 /* chosen: each step takes the DSQ's lock */
#define NR_CANDIDATES 4 /* chosen: bounds the words that one invitation reads */

const volatile u32 nr_cpu_ids = 1;
const volatile u32 nr_llcs = 1;
const volatile u32 nr_queues = 1;
/* nr_queues, and one per CPU more where queues are wider than a CPU. */
const volatile u32 nr_all_queues = 1;
const volatile u32 nr_groups = 1;
const volatile u32 nr_nodes = 1;
const volatile bool per_node_idle;
const volatile bool smt;
const volatile u32 fault; /* enum retune_fault, for tests only */
/* EEVDF's base slice on 8 CPUs and more: 0.7 ms x (1 + log2(8)). */
const volatile u64 slice_ns = 2800000;

#include "domain.bpf.h"
#include "stat.bpf.h"
#include "ctx.bpf.h"
#include "queue.bpf.h"
#include "load.bpf.h"
#include "idle.bpf.h"
#include "wake.bpf.h"
#include "spread.bpf.h"
#include "search.bpf.h"
#include "invite.bpf.h"
#include "balance.bpf.h"
#include "backstop.bpf.h"

/* ---- a task wakes ---- */

/* Claim an idle CPU near @target, whole cores first where cores have threads. */
static s32 claim_idle_cpu(const struct task_struct *p, const struct task_ctx *tctx, s32 target, s32 prev)
{
	s32 cpu = -EBUSY;

	if (smt)
		cpu = claim_idle_near(p, tctx, target, prev, true);
	return cpu >= 0 ? cpu : claim_idle_near(p, tctx, target, prev, false);
}

/*
 * Return the levels at which a task that @this_cpu wakes or forks may be spread: all
 * that have BALANCE_FORK for a new task; for a wakeup those with BALANCE_WAKE, unless
 * WAKE_AFFINE has decided (select_task_rq_fair() takes the one path or the other).
 */
static u32 spread_levels(const struct wakeup *w, u64 wake_flags)
{
	if (wake_flags & SCX_WAKE_FORK)
		return flagged_levels(flag_word(w->this_cpu), FLAG_BALANCE_FORK);
	return w->is_affine ? 0 : flagged_levels(flag_word(w->this_cpu), FLAG_BALANCE_WAKE);
}

/* Claim an idle CPU where the flags let the task be spread; -EBUSY if there is none. */
static s32 claim_idle_by_spreading(const struct task_struct *p, const struct wakeup *w, u64 wake_flags)
{
	u32 levels = spread_levels(w, wake_flags);
	const struct cpu_place *there;
	s32 cpu;

	if (!levels)
		return -EBUSY;
	cpu = claim_idle_far(p, w->this_cpu, levels);
	if (cpu < 0 || !(there = place_of(cpu)))
		return cpu;
	count(CNT_SELECT_IDLE_FAR);
	count_at(common_level(w->here, there), wake_flags & SCX_WAKE_FORK ? LCNT_SBF_PUSHED : LCNT_SBW_PUSHED);
	return cpu;
}

/*
 * Claim an idle CPU for @p. A new task takes only what BALANCE_FORK offers; without the
 * flag it begins behind its parent, as in the kernel.
 */
static s32 claim_any_idle(const struct task_struct *p, const struct task_ctx *tctx, const struct wakeup *w,
			  s32 target, u64 wake_flags)
{
	s32 cpu = claim_idle_by_spreading(p, w, wake_flags);

	if (cpu >= 0 || wake_flags & SCX_WAKE_FORK)
		return cpu;
	return claim_idle_cpu(p, tctx, target, w->prev);
}

s32 BPF_STRUCT_OPS(retune_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct wakeup w = { .this_cpu = bpf_get_smp_processor_id(), .prev = prev_cpu };
	struct task_ctx *tctx = tctx_of(p);
	s32 target = prev_cpu, cpu;

	count(CNT_SELECT_CPU);
	w.here = place_of(w.this_cpu);
	w.there = place_of(prev_cpu);
	if (!tctx || !w.here || !w.there)
		goto busy;
	if (wake_flags & SCX_WAKE_TTWU) {
		note_sleep_end(tctx, scx_bpf_now());
		w.sync = is_sync(wake_flags);
		w.sync_and_alone = w.sync && is_alone(w.this_cpu, w.here);
		target = pick_side(p, tctx, &w);
	}
	tctx->behind_waker = w.sync_and_alone && target == w.this_cpu;
	cpu = claim_any_idle(p, tctx, &w, target, wake_flags);
	if (cpu >= 0) {
		count_wakeup(tctx, w.this_cpu, cpu);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, SCX_ENQ_IMMED);
		return cpu;
	}
	count_wakeup(tctx, w.this_cpu, target);
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

	if (fault == FAULT_NO_PREEMPTION || !(enq_flags & SCX_ENQ_WAKEUP) || tctx->behind_waker || !cctx->curr_deadline ||
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

/* Let @p wait behind what runs on @cpu, and invite a CPU of the cache for it. */
static void wait_in_queue(struct task_struct *p, struct task_ctx *tctx, s32 cpu,
			  const struct cpu_place *place, u64 enq_flags)
{
	bool pinned = is_pinned(p);
	u32 queue = pinned ? own_queue(cpu, place) : place->queue;
	struct waiter w = { .p = p, .place = place, .queue = queue };
	struct queue *q = queue_of(queue);

	if (!q)
		return;
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

/* Return true if @p was put on the local DSQ, where only these three may be. */
static bool try_run_at_once(struct task_struct *p, struct task_ctx *tctx, struct cpu_ctx *cctx, s32 cpu,
			    u64 enq_flags)
{
	/* What came back from a local DSQ found a higher class there: it waits in the queue. */
	if (enq_flags & SCX_ENQ_REENQ) {
		count(CNT_REENQUEUED);
		return false;
	}
	/* A task that select_cpu never saw may find its CPU idle; the claim is ours to use. */
	if (is_allowed(p, cpu) && scx_bpf_test_and_clear_cpu_idle(cpu)) {
		count(CNT_ENQ_IDLE);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags | SCX_ENQ_IMMED);
		return true;
	}
	if (should_preempt(p, tctx, cctx, enq_flags)) {
		count(CNT_ENQ_PREEMPT);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags | SCX_ENQ_PREEMPT);
		return true;
	}
	return false;
}

void BPF_STRUCT_OPS(retune_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	const struct cpu_place *place = place_of(cpu);
	struct task_ctx *tctx = tctx_of(p);
	struct cpu_ctx *cctx = cctx_of(cpu);
	struct queue *base;

	count(CNT_ENQUEUE);
	if (is_percpu_kthread(p) || (fault == FAULT_PINNED_TO_LOCAL && is_pinned(p))) {
		count(CNT_ENQ_KTHREAD);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		return;
	}
	/*
	 * A CPU that has just come has no queue yet. The kernel is about to end us for it
	 * (sched_cpu_activate()); until then its tasks run where they are.
	 */
	if (!place || !tctx || !cctx || !(base = queue_of(place->queue))) {
		count(CNT_ENQ_IDLE);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		return;
	}
	place_in_time(p, tctx, base, place->queue, enq_flags);
	if (!try_run_at_once(p, tctx, cctx, cpu, enq_flags))
		wait_in_queue(p, tctx, cpu, place, enq_flags);
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

/* The queue whose head comes first, and that head's deadline (0: nothing waits). */
struct head {
	u32 queue;
	u64 deadline;
};

/* Return the earlier head of the shared queue and of the CPU's own. */
static struct head first_head(s32 cpu, const struct cpu_place *place)
{
	struct head head = { .queue = place->queue, .deadline = head_deadline(place->queue) };
	u32 own = own_queue(cpu, place);
	u64 deadline;

	if (own == place->queue)
		return head;
	deadline = head_deadline(own);
	if (deadline && (!head.deadline || time_before(deadline, head.deadline))) {
		head.queue = own;
		head.deadline = deadline;
	}
	return head;
}

static bool is_runnable(const struct task_struct *prev)
{
	return prev && prev->scx.flags & SCX_TASK_QUEUED;
}

/* Return true if @prev, which has run for some time now, still comes before @deadline. */
static bool comes_before(const struct task_struct *prev, u64 deadline)
{
	struct task_ctx *tctx = tctx_of((struct task_struct *)prev);
	u64 ran;

	if (!tctx)
		return false;
	ran = prev->se.sum_exec_runtime - tctx->exec_at;
	return time_before(deadline_of(prev, tctx) + scale_by_weight(prev, ran), deadline);
}

/* Let @prev go on; otherwise the kernel would give it 20 ms (SCX_SLICE_DFL). */
static void keep_running(struct task_struct *prev)
{
	scx_bpf_task_set_slice(prev, slice_ns);
	count(CNT_DISP_KEPT);
}

/* Move a task of the CPU's queues to its local DSQ, the earlier head first. */
static bool take_own(s32 cpu, const struct cpu_place *place, u32 first)
{
	u32 own = own_queue(cpu, place);

	if (scx_bpf_dsq_move_to_local(first, 0))
		return true;
	/* The first head may be for other CPUs of a wide queue only. */
	return own != place->queue && scx_bpf_dsq_move_to_local(first == own ? place->queue : own, 0);
}

void BPF_STRUCT_OPS(retune_dispatch, s32 cpu, struct task_struct *prev)
{
	const struct cpu_place *place = place_of(cpu);
	struct cpu_ctx *cctx = cctx_of(cpu);
	struct head head;

	count(CNT_DISPATCH);
	if (!place || !cctx || place->queue >= nr_queues) {
		count(CNT_DISP_NOTHING);
		return;
	}
	head = first_head(cpu, place);
	if (is_runnable(prev) && (!head.deadline || comes_before(prev, head.deadline))) {
		keep_running(prev);
		return;
	}
	if (take_own(cpu, place, head.queue))
		count(CNT_DISP_OWN);
	else if (is_runnable(prev))
		keep_running(prev);
	else if (newidle_balance(cpu))
		count(CNT_DISP_PULLED);
	else
		count(CNT_DISP_NOTHING);
}

/* ---- a task runs ---- */

/* Count where a task that waited in @waited_in began to run; pinned ones run at home. */
static void count_run(u32 waited_in, const struct cpu_place *here)
{
	const struct queue_place *qplace = queue_place_of(waited_in);
	const struct cpu_place *there;

	if (waited_in == here->queue || waited_in >= nr_queues)
		count(CNT_RUN_OWN);
	else if (qplace && (there = place_of(qplace->cpu)))
		count_at(level_or_last(common_level(here, there)), LCNT_RUN_ELSEWHERE);
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
	u64 now = scx_bpf_now();
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
	if (tctx->woken_at)
		count_latency(tctx->woken_level, time_delta(now, tctx->woken_at));
	tctx->woken_at = 0;
	tctx->exec_at = p->se.sum_exec_runtime;
	note_busy(cctx, now, p->scx.weight);
	cctx->seen_at = now;
	cctx->curr_deadline = deadline_of(p, tctx);
}

void BPF_STRUCT_OPS(retune_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	const struct cpu_place *place = place_of(cpu);
	struct queue *q = place ? queue_of(place->queue) : NULL;
	struct cpu_ctx *cctx = cctx_of(cpu);

	if (cctx)
		cctx->seen_at = scx_bpf_now();
	if (!q || !has_movable(q))
		return;
	count(CNT_TICK_OVERLOADED);
	invite_for_queue(place->queue, scx_bpf_now(), false);
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
	if (!runnable)
		note_sleep_begin(tctx, tctx->stopped_at);
	if (cctx) {
		note_busy(cctx, tctx->stopped_at, 0);
		cctx->curr_deadline = 0;
	}
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
	struct queue *q, *own;

	if (!place || !cctx || !(q = queue_of(place->queue)) || !(own = queue_of(own_queue(cpu, place))))
		return;
	if (!idle) {
		note_idle_end(cctx, scx_bpf_now());
		return;
	}
	cctx->idle_at = scx_bpf_now();
	/* Pairs with begin_wait(): see the head of queue.bpf.h. */
	if (has_waiting(q) || has_waiting(own) || missed_a_hint(cctx, place))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/*
 * A higher class takes the CPU: what is on its local DSQ must not wait there, where
 * nobody else can take it. It comes back through enqueue() and waits in the queue.
 */
void BPF_STRUCT_OPS(retune_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	scx_bpf_reenqueue_local();
}

/* ---- life of a task, life of the scheduler ---- */

/* Sleepable, so that the storage may wait for memory: at attach every task asks at once. */
s32 BPF_STRUCT_OPS_SLEEPABLE(retune_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *tctx = bpf_task_storage_get(&task_ctxs, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!tctx)
		return -ENOMEM;
	tctx->last_cpu = -1;
	tctx->busy = BUSY_ONE; /* as init_entity_runnable_average(): new tasks count in full */
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

	bpf_for(queue, 0, nr_all_queues) {
		const struct queue_place *shared = queue_place_of(queue);
		const struct cpu_place *cpu = shared ? place_of(shared->cpu) : place_of(queue - nr_queues);

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
	       .cpu_release	= (void *)retune_cpu_release,
	       .init_task	= (void *)retune_init_task,
	       .enable		= (void *)retune_enable,
	       .disable		= (void *)retune_disable,
	       .exit_task	= (void *)retune_exit_task,
	       .init		= (void *)retune_init,
	       .exit		= (void *)retune_exit,
	       .dump		= (void *)retune_dump,
	       .dump_cpu	= (void *)retune_dump_cpu,
	       .name		= "retune");
