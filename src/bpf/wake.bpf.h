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

/* Return true if the waker will sleep at once and leave @cpu to the wakee. */
static bool is_sync_and_alone(u64 wake_flags, s32 cpu, const struct cpu_place *place)
{
	const struct task_struct *waker = (void *)bpf_get_current_task_btf();

	return wake_flags & SCX_WAKE_SYNC && !(waker->flags & (PF_EXITING | PF_IDLE)) && is_alone(cpu, place);
}

/* Return true if the wakeup comes from an interrupt that found @cpu idle. */
static bool is_wake_from_idle(void)
{
	const struct task_struct *waker = (void *)bpf_get_current_task_btf();

	return waker->flags & PF_IDLE;
}

/* wake_affine_idle(): the side that can run the task at once, -1 if undecided. */
static s32 pick_side_by_idle(s32 this_cpu, const struct cpu_place *here, s32 prev,
			     const struct cpu_place *there, bool sync_and_alone)
{
	if (is_wake_from_idle() && cpus_share_cache(here, there))
		return is_idle(prev, there) ? prev : this_cpu;
	if (sync_and_alone)
		return this_cpu;
	if (is_idle(prev, there))
		return prev;
	return -1;
}

/*
 * Return the CPU from which the search for an idle one starts: the waker's, if the
 * lowest level that holds both has WAKE_AFFINE and its side can take the task,
 * else the previous one.
 */
static s32 pick_side(const struct task_struct *p, s32 this_cpu, s32 prev, bool sync_and_alone)
{
	const struct cpu_place *here = place_of(this_cpu), *there = place_of(prev);
	u32 level;

	if (this_cpu == prev || !here || !there || !is_allowed(p, this_cpu))
		return prev;
	level = common_level(here, there);
	if (!has_flag(flag_word(this_cpu), FLAG_WAKE_AFFINE, level)) {
		count_at(level, LCNT_AFFINE_FLAG_OFF);
		return prev;
	}
	count_at(level, LCNT_AFFINE_ATTEMPTS);
	if (pick_side_by_idle(this_cpu, here, prev, there, sync_and_alone) != this_cpu)
		return prev;
	count_at(level, LCNT_TTWU_MOVE_AFFINE);
	return this_cpu;
}

/* Count a wakeup at the lowest level that holds the waker's CPU and the chosen one. */
static void count_wakeup(s32 this_cpu, s32 cpu)
{
	const struct cpu_place *here = place_of(this_cpu), *there = place_of(cpu);

	if (this_cpu == cpu)
		count(CNT_TTWU_LOCAL);
	else if (here && there)
		count_at(common_level(here, there), LCNT_TTWU_WAKE_REMOTE);
}

#endif /* __RETUNE_WAKE_H */
