/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Invitations: how a task that waits gets an idle CPU to come for it.
 *
 * The kernel never asks a CPU again once it is idle. Its own balancer has the tick
 * of a busy CPU wake an idle one (nohz_balancer_kick()); here an enqueue invites a
 * CPU of the cache, the tick one from anywhere, and a CPU that pulled from a queue
 * that still holds something the next, so that a backlog drains in a doubling
 * chain. The CPU that would pull decides: its word is read before its idle bit is
 * claimed.
 */
#ifndef __RETUNE_INVITE_H
#define __RETUNE_INVITE_H

/* A task that waits, and where: what an invitation needs to know. */
struct waiter {
	const struct task_struct *p;
	const struct cpu_place *place; /* of its queue's CPU */
	u32 queue;
	bool rescue; /* none of the queue's CPUs can run it: flags do not count */
};

/* In cctx->invited_by: the queue + 1, and that the flags do not count. */
#define RESCUE_BIT (1U << 31)

/*
 * Invite @cpu if it may pull from the waiter's queue: the flags are those of the
 * invited, and its idle bit is claimed last. Return true if it was invited.
 */
static bool try_invite(const struct waiter *w, s32 cpu, u32 level_wanted)
{
	const struct cpu_place *there = place_of(cpu);
	struct cpu_ctx *cctx = cctx_of(cpu);
	u32 level;

	if (!there || !cctx || fault == FAULT_NO_INVITATIONS || !is_allowed(w->p, cpu))
		return false;
	level = common_level(there, w->place);
	if (level != level_wanted && level_wanted != LEVEL_NONE)
		return false;
	if (there->queue != w->place->queue && !w->rescue &&
	    !has_flag(flag_word(cpu), FLAG_BALANCE_NEWIDLE, level)) {
		count_at(level, LCNT_INVITE_FLAG_OFF);
		return false;
	}
	if (!scx_bpf_test_and_clear_cpu_idle(cpu))
		return false;
	/* Whoever holds the claim may write here: the CPU reads it after the kick. */
	WRITE_ONCE(cctx->invited_by, (w->queue + 1) | (w->rescue ? RESCUE_BIT : 0));
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	count_at(level, LCNT_INVITES);
	return true;
}

/*
 * Invite one idle CPU of @candidates. The kernel's distribute helper starts each
 * time after the CPU it gave last, so the few candidates differ from call to call.
 */
static bool invite_one_of(const struct waiter *w, u32 node_id, const struct cpumask *candidates, u32 level)
{
	const struct cpumask *idle = get_idle_mask(node_id);
	bool invited = false;
	u32 i, cpu;

	bpf_for(i, 0, NR_CANDIDATES) {
		cpu = bpf_cpumask_any_and_distribute(idle, candidates);
		if (cpu >= nr_cpu_ids)
			break;
		if ((invited = try_invite(w, cpu, level)))
			break;
	}
	scx_bpf_put_idle_cpumask(idle);
	return invited;
}

/* An invitation is under way: at most one per queue. Two may slip through; harmless. */
static bool is_invitation_open(const struct queue *q, u64 now)
{
	return time_before(now, READ_ONCE(q->invited_until));
}

static void open_invitation(struct queue *q, u64 now)
{
	WRITE_ONCE(q->invited_until, now + TICK_NS);
}

/* Invite one idle CPU of the waiter's own last-level cache. */
static bool invite_in_llc(const struct waiter *w, struct queue *q, u64 now)
{
	const struct cpumask *llc = llc_mask(w->place->llc);

	if (is_invitation_open(q, now) || !llc)
		return false;
	if (!invite_one_of(w, node_id_of(w->place), llc, LEVEL_NONE))
		return false;
	open_invitation(q, now);
	return true;
}

/* Invite one idle CPU of another node, nearest nodes first. */
static bool invite_far(const struct waiter *w)
{
	u32 i, node;

	bpf_for(i, 0, nr_nodes - 1) {
		const struct node_place *place;

		node = nearest_node(w->place->node, i);
		place = node_place_of(node);
		if (place && invite_one_of(w, place->id, w->p->cpus_ptr, LEVEL_NONE))
			return true;
	}
	return false;
}

/* Invite one idle CPU of the machine, nearest levels first. */
static void invite_anywhere(const struct waiter *w, struct queue *q, u64 now)
{
	if (is_invitation_open(q, now) || invite_in_llc(w, q, now))
		return;
	if (invite_one_of(w, node_id_of(w->place), w->p->cpus_ptr, LEVEL_PKG) || invite_far(w))
		open_invitation(q, now);
}

/* Invite a CPU for the first task of @queue that another CPU may run. */
static void invite_for_queue(u32 queue, u64 now, bool rescue)
{
	const struct queue_place *place = queue_place_of(queue);
	struct waiter w = { .queue = queue, .rescue = rescue };
	struct queue *q = queue_of(queue);
	struct task_struct *p;
	u32 nr_walked = 0;

	if (!place || !q || !has_movable(q) || is_invitation_open(q, now))
		return;
	w.place = place_of(place->cpu);
	if (!w.place)
		return;
	bpf_for_each(scx_dsq, p, queue, 0) {
		if (nr_walked++ >= NR_TASKS_WALKED)
			break;
		if (is_pinned(p))
			continue;
		w.p = p;
		invite_anywhere(&w, q, now);
		break;
	}
}

#endif /* __RETUNE_INVITE_H */
