/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Load: what the weight rule of wake_affine() compares.
 *
 * The kernel's per-entity load tracking cannot be read from BPF, so there is one
 * average per CPU and one per task, each with PELT's half life of 32 ms. A CPU
 * writes its own; others read one line of it, and only when the idle rule has not
 * decided.
 */
#ifndef __RETUNE_LOAD_H
#define __RETUNE_LOAD_H

#define HALF_LIFE_NS 32000000ULL /* kernel: PELT, 32 periods of 1024 us */
#define BUSY_ONE (1U << 20)

/* Halve @value for every half life in @ns; in between, along a straight line. */
static u64 decay(u64 value, s64 ns)
{
	u64 halvings, rest;

	if (ns <= 0)
		return value;
	halvings = ns / HALF_LIFE_NS;
	rest = ns % HALF_LIFE_NS;
	if (halvings > 40)
		return 0;
	value >>= halvings;
	return value - value * rest / (2 * HALF_LIFE_NS);
}

/* Return @cctx's average with what has run since it was last brought up to date. */
static u64 busy_at(const struct cpu_ctx *cctx, u64 now)
{
	/* Torn reads of a remote CPU's fields cost one wrong guess; the next wakeup sees better. */
	s64 ns = time_delta(now, READ_ONCE(cctx->busy_at));
	u64 weight = (u64)READ_ONCE(cctx->curr_weight) << 10;

	return decay(READ_ONCE(cctx->busy), ns) + weight - decay(weight, ns);
}

/* Bring @cctx's average up to now; from now on its CPU runs @weight. */
static void note_busy(struct cpu_ctx *cctx, u64 now, u32 weight)
{
	cctx->busy = busy_at(cctx, now);
	cctx->busy_at = now;
	cctx->curr_weight = weight;
}

/* Return the load of @cpu: what it ran of late and what waits there, nice 0 = 100 << 10. */
static u64 load_of_cpu(s32 cpu, const struct cpu_place *place, u64 now)
{
	const struct queue_place *qplace = queue_place_of(place->queue);
	struct queue *q = queue_of(place->queue);
	struct cpu_ctx *cctx = cctx_of(cpu);
	u64 waiting;

	if (!q || !cctx || !qplace)
		return 0;
	waiting = (READ_ONCE(q->movable) & (LOAD_ONE - 1)) + (READ_ONCE(q->pinned) & (LOAD_ONE - 1));
	return busy_at(cctx, now) + (waiting << 10) / (qplace->nr_cpus ?: 1);
}

/* Return the load that @p brings along: its weight by the part of its time that it wants a CPU. */
static u64 load_of_task(const struct task_struct *p, const struct task_ctx *tctx)
{
	return (u64)p->scx.weight * tctx->busy >> 10;
}

/* @p wakes: it was not busy while it slept. */
static void note_sleep_end(struct task_ctx *tctx, u64 now)
{
	if (tctx->busy_at)
		tctx->busy = decay(tctx->busy, time_delta(now, tctx->busy_at));
	tctx->busy_at = now;
}

/* @p goes to sleep: it was busy, running or waiting, since it woke. */
static void note_sleep_begin(struct task_ctx *tctx, u64 now)
{
	s64 ns = time_delta(now, tctx->busy_at);

	if (tctx->busy_at)
		tctx->busy = decay(tctx->busy, ns) + BUSY_ONE - decay(BUSY_ONE, ns);
	tctx->busy_at = now;
}

#endif /* __RETUNE_LOAD_H */
