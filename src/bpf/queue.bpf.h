/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Run queues: who waits where, in which order, and the hints that let an idle CPU
 * find work without reading every queue.
 *
 * A queue's tasks are in the kernel's DSQ of the same number, ordered by deadline.
 * With queues wider than one CPU each CPU has a queue of its own besides, for the
 * tasks that it alone may run; both are ordered on the wide queue's time.
 * The load words are ours: the kernel links a task into its DSQ only after
 * ops.enqueue() has returned, so what a DSQ holds cannot be asked there. A load
 * word is raised by a fetching atomic, a full barrier, before enqueue looks for
 * an idle CPU; update_idle() looks at it after the CPU's idle bit is set. One of
 * the two therefore sees the other.
 */
#ifndef __RETUNE_QUEUE_H
#define __RETUNE_QUEUE_H

/* Weight in the low bits (10000 a task at most), number of tasks above. */
#define LOAD_SHIFT 40
#define LOAD_ONE (1ULL << LOAD_SHIFT)

struct queue {
	u64 movable; /* load word of the tasks that other CPUs may run */
	u64 pinned; /* load word of the others */
	u64 vnow; /* base of virtual time */
	u64 invited_until; /* ns; an invitation is under way until then */
} __attribute__((aligned(128)));

struct queue RESIZABLE_ARRAY(data, queues);

/* Overload hints: a bit per queue of the group, a bit per group of the node. */
struct hints {
	u64 word;
} __attribute__((aligned(128)));

struct hints RESIZABLE_ARRAY(data, group_hints);
struct hints RESIZABLE_ARRAY(data, node_hints);

static struct queue *queue_of(u32 queue)
{
	return ARRAY_ELEM_PTR(queues, queue, nr_all_queues);
}

/* Return the queue of the tasks that only @cpu may run. */
static u32 own_queue(s32 cpu, const struct cpu_place *place)
{
	return nr_all_queues == nr_queues ? place->queue : nr_queues + cpu;
}

static struct hints *group_hints_of(u32 group)
{
	return ARRAY_ELEM_PTR(group_hints, group, nr_groups);
}

static struct hints *node_hints_of(u32 node)
{
	return ARRAY_ELEM_PTR(node_hints, node, nr_nodes);
}

static bool has_waiting(const struct queue *q)
{
	return READ_ONCE(q->movable) | READ_ONCE(q->pinned);
}

static bool has_movable(const struct queue *q)
{
	return READ_ONCE(q->movable);
}

/* ---- hints ---- */

/* Set @bit if it is clear: the word is read by all, so it is not written for nothing. */
static void set_hint(struct hints *hints, u32 bit)
{
	if (hints && !(READ_ONCE(hints->word) & (1ULL << bit)))
		__sync_fetch_and_or(&hints->word, 1ULL << bit);
}

static void clear_hint(struct hints *hints, u32 bit)
{
	if (hints && READ_ONCE(hints->word) & (1ULL << bit))
		__sync_fetch_and_and(&hints->word, ~(1ULL << bit));
}

/* Say that @queue has a task that another CPU may run. */
static void hint_overloaded(u32 queue)
{
	const struct queue_place *place = queue_place_of(queue);
	const struct group_place *group;

	if (!place || !(group = group_place_of(place->group)))
		return;
	set_hint(group_hints_of(place->group), place->bit);
	set_hint(node_hints_of(group->node), group->bit);
}

/*
 * Take back the hint of a queue that was found empty. Only pullers do this, so a
 * queue that two tasks share in turns keeps its bit instead of writing the word
 * at each switch. The second look pairs with the atomic in begin_wait(): a task
 * that came in between finds its bit set again.
 */
static void unhint_if_empty(u32 queue)
{
	const struct queue_place *place = queue_place_of(queue);
	struct queue *q = queue_of(queue);
	const struct group_place *group;
	struct hints *hints;

	if (!place || !q || has_movable(q) || !(group = group_place_of(place->group)))
		return;
	hints = group_hints_of(place->group);
	clear_hint(hints, place->bit);
	if (hints && !READ_ONCE(hints->word)) {
		clear_hint(node_hints_of(group->node), group->bit);
		if (READ_ONCE(hints->word))
			set_hint(node_hints_of(group->node), group->bit);
	}
	if (has_movable(q))
		hint_overloaded(queue);
}

/* ---- who waits ---- */

static u64 *load_word(struct queue *q, bool pinned)
{
	return pinned ? &q->pinned : &q->movable;
}

/* Count @p out of the queue it waits in; return false if it waits in none. */
static bool end_wait(struct task_ctx *tctx)
{
	struct queue *q;

	if (!tctx->waiting_as)
		return false;
	q = queue_of(tctx->waits_in);
	if (q)
		__sync_fetch_and_sub(load_word(q, tctx->waits_pinned), tctx->waiting_as);
	tctx->waiting_as = 0;
	return true;
}

/* @p leaves its queue without having run. */
static void abandon_wait(struct task_ctx *tctx)
{
	if (end_wait(tctx))
		count(CNT_WAIT_REMOVED);
}

/* Count @p into @queue; a full barrier, which the idle search after it needs. */
static void begin_wait(const struct task_struct *p, struct task_ctx *tctx, struct queue *q, u32 queue,
		       bool pinned)
{
	u64 load = LOAD_ONE + p->scx.weight;

	abandon_wait(tctx);
	count(CNT_WAIT_BEGUN);
	tctx->waits_in = queue;
	tctx->waits_pinned = pinned;
	tctx->waiting_as = load;
	__sync_fetch_and_add(load_word(q, pinned), load);
}

/* ---- order ---- */

/* Return @ns of run time in @p's virtual time: weight 100 is nice 0. */
static u64 scale_by_weight(const struct task_struct *p, u64 ns)
{
	return ns * 100 / (p->scx.weight ?: 1);
}

static u64 deadline_of(const struct task_struct *p, const struct task_ctx *tctx)
{
	return fault == FAULT_NO_ORDER ? scx_bpf_now() : tctx->vtime + scale_by_weight(p, slice_ns);
}

static s64 clamp_lag(s64 lag, s64 bound)
{
	return lag < -bound ? -bound : lag > bound ? bound : lag;
}

/* Move @p's virtual time to @queue's base; at most one slice of lag goes along. */
static void rebase_vtime(const struct task_struct *p, struct task_ctx *tctx, u32 queue)
{
	struct queue *from = queue_of(tctx->queue), *to = queue_of(queue);
	s64 lag;

	if (tctx->queue == queue || !from || !to)
		return;
	lag = clamp_lag(tctx->vtime - READ_ONCE(from->vnow), scale_by_weight(p, slice_ns));
	tctx->vtime = READ_ONCE(to->vnow) + lag;
	tctx->queue = queue;
}

/* A sleeper keeps at most one slice of credit. */
static void bound_sleeper(const struct task_struct *p, struct task_ctx *tctx, const struct queue *q)
{
	u64 oldest = READ_ONCE(q->vnow) - scale_by_weight(p, slice_ns);

	if (fault == FAULT_NO_SLEEPER_BOUND)
		return;
	if (time_before(tctx->vtime, oldest))
		tctx->vtime = oldest;
}

/*
 * Move the base up to the task that begins to run. It is written only when it
 * moves by a quarter of a slice, so that two tasks that switch all the time do
 * not write it each time.
 */
static void advance_vnow(struct queue *q, u64 vtime)
{
	if (time_after(vtime, READ_ONCE(q->vnow) + slice_ns / 4))
		WRITE_ONCE(q->vnow, vtime);
}

#endif /* __RETUNE_QUEUE_H */
