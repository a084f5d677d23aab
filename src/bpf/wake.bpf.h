/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Wakeups: on which side of the machine a woken task looks for a CPU.
 *
 * This is the kernel's wake_affine() (kernel/sched/fair.c) with its flag read from
 * the waker's word at each wakeup. Everything about the waker is taken here: with
 * queued wakeups ops.enqueue() runs later, on the target CPU, and cannot know it.
 */
#ifndef __RETUNE_WAKE_H
#define __RETUNE_WAKE_H

/* Return true if @cpu runs one task and nothing waits behind it. */
static bool is_alone(s32 cpu, const struct cpu_place *place)
{
	struct queue *q = queue_of(place->queue);

	return q && !has_waiting(q) && !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu);
}

/* Return true if the waker has said that it is about to sleep. */
static bool is_sync(u64 wake_flags)
{
	const struct task_struct *waker = bpf_get_current_task_btf();

	return wake_flags & SCX_WAKE_SYNC && !(waker->flags & (PF_EXITING | PF_IDLE));
}

/* Return true if the wakeup comes from an interrupt that found @cpu idle. */
static bool is_wake_from_idle(void)
{
	const struct task_struct *waker = bpf_get_current_task_btf();

	return waker->flags & PF_IDLE;
}

/* What select_cpu() knows of a wakeup. */
struct wakeup {
	s32 this_cpu;
	s32 prev;
	const struct cpu_place *here; /* of this_cpu */
	const struct cpu_place *there; /* of prev */
	bool sync;
	bool sync_and_alone;
	bool is_affine; /* out: WAKE_AFFINE has decided, for or against the waker's side */
};

/* wake_affine_idle(): the side that can run the task at once, -1 if undecided. */
static s32 pick_side_by_idle(const struct wakeup *w)
{
	if (is_wake_from_idle() && cpus_share_cache(w->here, w->there))
		return is_idle(w->prev, w->there) ? w->prev : w->this_cpu;
	if (w->sync_and_alone)
		return w->this_cpu;
	if (is_idle(w->prev, w->there))
		return w->prev;
	return -1;
}

/*
 * wake_affine_weight(): the waker's CPU if it would be the less loaded one with @p.
 * The kernel's bias of half the imbalance allowed favours the waker.
 */
static bool is_waker_side_lighter(const struct task_struct *p, const struct task_ctx *tctx,
				  const struct wakeup *w, u32 level)
{
	u64 now = scx_bpf_now(), load = load_of_task(p, tctx);
	u64 this_load = load_of_cpu(w->this_cpu, w->here, now);
	u64 prev_load = load_of_cpu(w->prev, w->there, now);
	/* imbalance_pct is 110 at SMT, 117 elsewhere (sd_init()). */
	u64 bias = 100 + (level == LEVEL_SMT ? 10 : 17) / 2;

	if (fault == FAULT_NO_WEIGHT_RULE)
		return false;
	if (w->sync) {
		struct task_struct *waker = bpf_get_current_task_btf();
		struct task_ctx *wctx = tctx_of(waker);
		u64 waker_load = wctx ? load_of_task(waker, wctx) : 0;

		if (waker_load > this_load)
			return true;
		this_load -= waker_load;
	}
	prev_load = prev_load > load ? prev_load - load : 0;
	return (this_load + load) * 100 < prev_load * bias + w->sync;
}

/*
 * record_wakee(), wake_wide(): return true if waker and wakee wake so many others
 * that pulling the wakee over would heap them on one cache.
 */
static bool is_wide(const struct task_struct *p, const struct task_ctx *tctx, const struct cpu_place *here)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	const struct llc_place *llc = llc_of(here->llc);
	u64 now = scx_bpf_now();
	struct task_ctx *wctx;
	u32 more, less, factor;

	if (waker->flags & PF_IDLE || !llc || !(wctx = tctx_of(waker)))
		return false;
	if (time_after(now, wctx->flips_decay_at + NSEC_PER_SEC)) {
		wctx->flips /= 2;
		wctx->flips_decay_at = now;
	}
	if (wctx->last_wakee != p->pid) {
		wctx->last_wakee = p->pid;
		wctx->flips++;
	}
	factor = llc->nr_cpus;
	more = wctx->flips > tctx->flips ? wctx->flips : tctx->flips;
	less = wctx->flips > tctx->flips ? tctx->flips : wctx->flips;
	return fault != FAULT_NEVER_WIDE && less >= factor && more >= less * factor;
}

/*
 * Return the CPU from which the search for an idle one starts: the waker's, if the
 * lowest level that holds both has WAKE_AFFINE and its side can take the task,
 * else the previous one.
 */
static s32 pick_side(const struct task_struct *p, const struct task_ctx *tctx, struct wakeup *w)
{
	bool wide = is_wide(p, tctx, w->here);
	u32 level;
	s32 side;

	w->is_affine = !wide && w->this_cpu == w->prev;
	if (w->this_cpu == w->prev || !is_allowed(p, w->this_cpu))
		return w->prev;
	level = common_level(w->here, w->there);
	if (!has_flag(flag_word(w->this_cpu), FLAG_WAKE_AFFINE, level)) {
		count_at(level, LCNT_AFFINE_FLAG_OFF);
		return w->prev;
	}
	if (wide) {
		count_at(level, LCNT_AFFINE_WIDE);
		return w->prev;
	}
	w->is_affine = true;
	count_at(level, LCNT_AFFINE_ATTEMPTS);
	side = pick_side_by_idle(w);
	if (side < 0 && is_waker_side_lighter(p, tctx, w, level)) {
		count_at(level, LCNT_AFFINE_BY_WEIGHT);
		side = w->this_cpu;
	}
	if (side != w->this_cpu)
		return w->prev;
	count_at(level, LCNT_TTWU_MOVE_AFFINE);
	return side;
}

/* Count a wakeup at the lowest level that holds the waker's CPU and the chosen one. */
static void count_wakeup(struct task_ctx *tctx, s32 this_cpu, s32 cpu)
{
	const struct cpu_place *here = place_of(this_cpu), *there = place_of(cpu);
	u32 level = NR_LEVELS;

	if (this_cpu == cpu) {
		count(CNT_TTWU_LOCAL);
	} else if (here && there) {
		level = common_level(here, there);
		count_at(level, LCNT_TTWU_WAKE_REMOTE);
	}
	tctx->woken_level = level;
	tctx->woken_at = scx_bpf_now();
}

#endif /* __RETUNE_WAKE_H */
