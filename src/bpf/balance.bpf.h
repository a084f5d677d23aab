/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * New-idle balance: a CPU that goes idle looks for work, level by level outward where
 * its word has BALANCE_NEWIDLE, behind the kernel's gates (sched_balance_newidle() in
 * kernel/sched/fair.c).
 */
#ifndef __RETUNE_BALANCE_H
#define __RETUNE_BALANCE_H

/* ---- which task ---- */

/* task_hot(): return true if @p ran so recently that its cache may still be warm. */
static bool is_hot(const struct task_ctx *tctx, u32 level, u64 now)
{
	/* A task that never stopped is new, and cold. Clocks of two CPUs may differ: a stop in the future is a recent one. */
	return level != LEVEL_SMT && tctx->stopped_at &&
	       time_delta(now, tctx->stopped_at) < MIGRATION_COST_NS;
}

/* Return how many tries in a row must fail before hot tasks move (cache_nice_tries). */
static u32 patience(u32 level)
{
	return level == LEVEL_SMT ? 0 : level < NR_LOCAL_LEVELS ? 1 : 2;
}

/* Return true if NUMA balancing wants @p on @node. */
static bool is_on_preferred_node(const struct task_struct *p, u32 level, u32 node_id)
{
	return level >= LEVEL_NUMA1 && bpf_core_field_exists(p->numa_preferred_nid) &&
	       p->numa_preferred_nid == (int)node_id;
}

/* Why a task is not pulled now, though it may be later. */
enum reluctance {
	WILLING,
	HOT,
	PREFERS_ITS_NODE,
};

static enum reluctance reluctance_of(struct task_struct *p, u32 level, u32 node_id, u64 now)
{
	struct task_ctx *tctx = tctx_of(p);

	if (tctx && is_hot(tctx, level, now))
		return HOT;
	return is_on_preferred_node(p, level, node_id) ? PREFERS_ITS_NODE : WILLING;
}

/*
 * Move the first task of @queue that @cpu may run and should to @cpu's local DSQ.
 * At most NR_TASKS_WALKED are looked at, because each step takes the DSQ's lock.
 */
static bool pull_from(s32 cpu, u32 queue, u32 level, bool take_all)
{
	const struct queue_place *qplace = queue_place_of(queue);
	const struct cpu_place *there = qplace ? place_of(qplace->cpu) : NULL;
	u32 nr_walked = 0, node_id = there ? node_id_of(there) : 0;
	u64 now = scx_bpf_now();
	enum reluctance why;
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0) {
		if (nr_walked++ >= NR_TASKS_WALKED)
			break;
		if (!is_allowed(p, cpu) || is_migration_disabled(p)) {
			count_at(level, LCNT_REFUSED_AFFINITY);
			continue;
		}
		why = reluctance_of(p, level, node_id, now);
		if (why != WILLING && !take_all) {
			count_at(level, why == HOT ? LCNT_REFUSED_HOT : LCNT_REFUSED_PREFERRED);
			continue;
		}
		if (why == HOT)
			count_at(level, LCNT_LB_HOT_GAINED);
		if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0))
			return true;
	}
	return false;
}

/* ---- new idle ---- */

/* Return the time since boot in the terms of the gates: ns, never going back. */
static u64 elapsed_ns(u64 since)
{
	s64 ns = time_delta(bpf_ktime_get_ns(), since);

	return ns > 0 ? ns : 0;
}

/*
 * NI_RANDOM and NI_RATE (sched_balance_newidle(), update_newidle_stats()): a level
 * whose tries seldom succeed is tried in proportion to its success. Return the
 * weight with which a success counts, 0 if the dice say no.
 */
static u32 roll_dice(const struct newidle_ctx *ni)
{
	u32 weight = 1 + ni->ratio;

	if (ni->ratio >= DICE || fault == FAULT_NO_GATES)
		return 1;
	if ((bpf_get_prandom_u32() & (DICE - 1)) > weight)
		return 0;
	return (DICE + weight / 2) / weight;
}

static void note_try(struct newidle_ctx *ni, u32 weighted_success)
{
	ni->nr_tries++;
	ni->nr_weighted += weighted_success;
	if (ni->nr_tries < DICE)
		return;
	ni->ratio = ni->nr_weighted < DICE ? ni->nr_weighted : DICE;
	ni->nr_tries /= 2;
	ni->nr_weighted /= 2;
}

/* update_newidle_cost(): remember the dearest try, forget 1% of it a second. */
static void note_cost(struct newidle_ctx *ni, u64 cost, u64 now)
{
	if (cost > ni->cost_ns) {
		ni->cost_ns = cost;
		ni->decay_at = now;
	} else if (time_after(now, ni->decay_at + NSEC_PER_SEC)) {
		ni->cost_ns = ni->cost_ns * 253 / 256;
		ni->decay_at = now;
	}
}

/* Pull from @queue; a backlog that stays behind invites the next CPU. */
static bool pull_and_pass_on(struct newidle_ctx *ni, s32 cpu, u32 queue, u32 level)
{
	struct queue *q = queue_of(queue);
	bool pulled;

	if (!q)
		return false;
	pulled = pull_from(cpu, queue, level, ni->nr_failed > patience(level) || fault == FAULT_NO_GATES);
	/* Looked at: whoever waits there may invite again. */
	WRITE_ONCE(q->invited_until, 0);
	if (pulled)
		invite_for_queue(queue, scx_bpf_now(), false);
	return pulled;
}

/* Try one level; return true if a task was pulled. */
static bool balance_level(struct newidle_ctx *ni, s32 cpu, u32 level)
{
	u32 queue = find_busiest_queue(cpu, level);

	if (queue >= nr_queues) {
		count_at(level, LCNT_LB_NOBUSYQ);
		return false;
	}
	if (pull_and_pass_on(ni, cpu, queue, level)) {
		count_at(level, LCNT_LB_GAINED);
		ni->nr_failed = 0;
		return true;
	}
	count_at(level, LCNT_LB_FAILED);
	ni->nr_failed++;
	return false;
}

/* Count the levels that this CPU has but whose flag forbids it to pull from. */
static void count_flags_off(u32 levels)
{
	u32 level;

	bpf_for(level, 0, NR_LEVELS)
		if (levels & (1U << level))
			count_at(level, LCNT_LB_FLAG_OFF);
}

/* Return true if the kernel's gates stop a CPU that went idle by itself at this level. */
static bool is_too_short_an_idle(const struct cpu_ctx *cctx, const struct newidle_ctx *ni, u64 spent)
{
	return fault != FAULT_NO_GATES && cctx->avg_idle_ns < spent + ni->cost_ns;
}

/* Pull from the queue of a rescue: its tasks have no CPU of their own to run on. */
static bool rescue(s32 cpu, const struct cpu_place *here, u32 queue)
{
	const struct queue_place *qplace = queue_place_of(queue);
	const struct cpu_place *there = qplace ? place_of(qplace->cpu) : NULL;
	struct queue *q = queue_of(queue);
	u32 level = there ? common_level(here, there) : LEVEL_NONE;

	if (!q || !pull_from(cpu, queue, level, true))
		return false;
	WRITE_ONCE(q->invited_until, 0);
	count_at(level_or_last(level), LCNT_RESCUED);
	return true;
}

/* Return what invited @cctx's CPU and forget it; 0 if it went idle by itself. */
static u32 take_invitation(struct cpu_ctx *cctx)
{
	u32 invited_by = READ_ONCE(cctx->invited_by);

	if (invited_by) {
		WRITE_ONCE(cctx->invited_by, 0);
		count(CNT_INVITED);
	}
	return invited_by;
}

/* Remember whether @here's cache had a hint, for update_idle() to see a later one. */
static void note_hints(struct cpu_ctx *cctx, const struct cpu_place *here)
{
	const struct llc_place *llc = llc_of(here->llc);
	struct hints *hints = llc ? group_hints_of(llc->first_group) : NULL;

	cctx->saw_no_hint = hints && !READ_ONCE(hints->word);
}

/* A CPU that looks for work, and what looking has cost it so far. */
struct newidle {
	struct cpu_ctx *cctx;
	s32 cpu;
	bool invited;
	u64 began; /* ns */
	u64 spent_ns;
};

/* Try one level behind its gates; 1 pulled, 0 not, -1 stop looking. */
static int try_level(struct newidle *n, u32 level)
{
	struct newidle_ctx *ni = &n->cctx->newidle[level];
	u32 weight = 1;
	u64 spent_ns;
	bool pulled;

	count_at(level, LCNT_LB_COUNT);
	if (!n->invited && is_too_short_an_idle(n->cctx, ni, n->spent_ns)) {
		count_at(level, LCNT_LB_COST);
		return -1;
	}
	if (!n->invited && !(weight = roll_dice(ni))) {
		count_at(level, LCNT_LB_DICE);
		note_try(ni, 0);
		return 0;
	}
	pulled = balance_level(ni, n->cpu, level);
	spent_ns = elapsed_ns(n->began);
	note_cost(ni, spent_ns - n->spent_ns, n->began);
	n->spent_ns = spent_ns;
	if (!n->invited)
		note_try(ni, pulled ? weight : 0);
	return pulled;
}

/*
 * The CPU has nothing to run: look outward, nearest level first, and pull one
 * task. An invited CPU answers for a task that waits and passes no gate but the
 * flags: that stands in for the kernel's NOHZ idle balance.
 */
static bool newidle_balance(s32 cpu)
{
	struct newidle n = { .cctx = cctx_of(cpu), .cpu = cpu, .began = bpf_ktime_get_ns() };
	const struct cpu_place *here = place_of(cpu);
	u32 invited_by, levels, level;
	int tried;

	if (!here || !n.cctx)
		return false;
	invited_by = take_invitation(n.cctx);
	if (invited_by & RESCUE_BIT && rescue(cpu, here, (invited_by & ~RESCUE_BIT) - 1))
		return true;
	n.invited = invited_by;
	note_hints(n.cctx, here);
	levels = flagged_levels(flag_word(cpu), FLAG_BALANCE_NEWIDLE) & here->levels;
	count_flags_off(here->levels & ~levels);

	bpf_for(level, 0, NR_LEVELS) {
		if (!(levels & (1U << level)))
			continue;
		tried = try_level(&n, level);
		if (tried)
			return tried > 0;
	}
	return false;
}

#endif /* __RETUNE_BALANCE_H */
