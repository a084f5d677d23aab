/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counters. A row belongs to the CPU that executes, never to the task's CPU:
 * scheduler callbacks run with interrupts off, so plain increments are exact.
 * A call is counted where it begins and its exit where it ends, each on its own;
 * the laws between them (docs/stats.md) can therefore fail, which is their use.
 */
#ifndef __RETUNE_STAT_H
#define __RETUNE_STAT_H

struct cpu_stat RESIZABLE_ARRAY(data, cpu_stats);

/* Return the row of the executing CPU. */
static struct cpu_stat *this_stat(void)
{
	return ARRAY_ELEM_PTR(cpu_stats, bpf_get_smp_processor_id(), nr_cpu_ids + 1);
}

static void count(enum cpu_counter counter)
{
	struct cpu_stat *stat = this_stat();

	if (fault == FAULT_MISCOUNT && counter == CNT_DISP_NOTHING && !(bpf_get_prandom_u32() & 255))
		return;
	if (stat)
		stat->cpu[counter]++;
}

static void count_at(u32 level, enum level_counter counter)
{
	struct cpu_stat *stat = this_stat();

	if (stat && level < NR_LEVELS)
		stat->level[counter][level]++;
}

/* Count @ns from wakeup to run, for a wakeup across @level. */
static void count_latency(u32 level, s64 ns)
{
	struct cpu_stat *stat = this_stat();
	u64 us = ns > 0 ? ns / 1000 : 0; /* clocks of two CPUs may differ a little */
	u32 bucket = us ? log2_u64(us) : 0;

	if (bucket >= NR_LATENCY_BUCKETS)
		bucket = NR_LATENCY_BUCKETS - 1;
	if (stat && level <= NR_LEVELS)
		stat->latency[level][bucket]++;
}

/* Count from the timer, which has a row of its own and may be interrupted. */
static void count_from_timer(enum cpu_counter counter)
{
	struct cpu_stat *stat = ARRAY_ELEM_PTR(cpu_stats, nr_cpu_ids, nr_cpu_ids + 1);

	if (stat)
		__sync_fetch_and_add(&stat->cpu[counter], 1);
}

#endif /* __RETUNE_STAT_H */
