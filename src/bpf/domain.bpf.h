/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Domains: where CPUs are, what two of them share, and which flags hold there.
 *
 * The tables never change while loaded, so every cache of the machine may hold
 * them. The flag word is the only thing here that changes: a decision reads one
 * CPU's word once and keeps nothing that was derived from it. (The kernel made
 * its flags read-only because pointers derived from them went stale.)
 */
#ifndef __RETUNE_DOMAIN_H
#define __RETUNE_DOMAIN_H

struct cpu_place RESIZABLE_ARRAY(rodata, cpu_places);
struct llc_place RESIZABLE_ARRAY(rodata, llc_places);
struct queue_place RESIZABLE_ARRAY(rodata, queue_places);
struct group_place RESIZABLE_ARRAY(rodata, group_places);
struct node_place RESIZABLE_ARRAY(rodata, node_places);

/* node_levels[from * nr_nodes + to]: the level at which @from's CPUs see @to. */
u8 RESIZABLE_ARRAY(rodata, node_levels);
/* node_order[from * nr_nodes + i]: the other nodes, nearest first. */
u16 RESIZABLE_ARRAY(rodata, node_order);

/*
 * A word per CPU and, behind them, the generation, which the loader bumps after it
 * has written the words. The generation is only reported, never tested.
 */
u64 RESIZABLE_ARRAY(data, flag_words);

/* The CPUs of all queues, queue after queue. */
u16 RESIZABLE_ARRAY(rodata, queue_cpus);

static const struct cpu_place *place_of(s32 cpu)
{
	return ARRAY_ELEM_PTR(cpu_places, cpu, nr_cpu_ids);
}

static const struct llc_place *llc_of(u32 llc)
{
	return ARRAY_ELEM_PTR(llc_places, llc, nr_llcs);
}

static const struct queue_place *queue_place_of(u32 queue)
{
	return ARRAY_ELEM_PTR(queue_places, queue, nr_queues);
}

/* Return the @i-th CPU of a queue, -1 if it has fewer. */
static s32 member_of(const struct queue_place *place, u32 i)
{
	u16 *cpu = ARRAY_ELEM_PTR(queue_cpus, place->first_member + i, nr_cpu_ids);

	return i < place->nr_cpus && cpu ? *cpu : -1;
}

static const struct group_place *group_place_of(u32 group)
{
	return ARRAY_ELEM_PTR(group_places, group, nr_groups);
}

static const struct node_place *node_place_of(u32 node)
{
	return ARRAY_ELEM_PTR(node_places, node, nr_nodes);
}

/* Return the first CPU of @group's first queue. */
static s32 first_cpu_of(const struct group_place *group)
{
	const struct queue_place *queue = queue_place_of(group->first_queue);

	return queue ? queue->cpu : -1;
}

static u64 flag_word(s32 cpu)
{
	u64 *word = ARRAY_ELEM_PTR(flag_words, cpu, nr_cpu_ids + 1);

	if (fault == FAULT_FLAGS_IGNORED)
		return ~0ULL;
	return word ? READ_ONCE(*word) : 0;
}

static u64 flag_generation(void)
{
	return flag_word(nr_cpu_ids);
}

/* Return the levels at which @word has @flag, a bit each, nearest lowest. */
static u32 flagged_levels(u64 word, enum retune_flag flag)
{
	return (word >> (flag * NR_LEVELS)) & ((1U << NR_LEVELS) - 1);
}

static bool has_flag(u64 word, enum retune_flag flag, u32 level)
{
	return level < NR_LEVELS && flagged_levels(word, flag) & (1U << level);
}

/* Return the level at which a CPU of node @from sees node @to. */
static u32 node_level(u32 from, u32 to)
{
	u8 *level = ARRAY_ELEM_PTR(node_levels, from * nr_nodes + to, nr_nodes * nr_nodes);

	return level ? *level : LEVEL_NONE;
}

/* Return the @i-th nearest of the other nodes, seen from @from. */
static u32 nearest_node(u32 from, u32 i)
{
	u16 *node = ARRAY_ELEM_PTR(node_order, from * nr_nodes + i, nr_nodes * nr_nodes);

	return node ? *node : 0;
}

/* Return the level at which @from sees @node; an isolated CPU sees it at none. */
static u32 node_level_of(const struct cpu_place *from, u32 node)
{
	u32 level = node_level(from->node, node);

	return level < NR_LEVELS && from->levels & (1U << level) ? level : LEVEL_NONE;
}

static bool same_domain(const struct cpu_place *a, const struct cpu_place *b, u32 level)
{
	return a->dom[level & (NR_LOCAL_LEVELS - 1)] == b->dom[level & (NR_LOCAL_LEVELS - 1)];
}

/*
 * Return the lowest level of @from's domains that also holds @to, LEVEL_NONE if
 * none does. Nested ids below NUMA, then one table look-up.
 */
static u32 common_level(const struct cpu_place *from, const struct cpu_place *to)
{
	if (same_domain(from, to, LEVEL_SMT))
		return LEVEL_SMT;
	if (same_domain(from, to, LEVEL_CLS))
		return LEVEL_CLS;
	if (same_domain(from, to, LEVEL_MC))
		return LEVEL_MC;
	if (same_domain(from, to, LEVEL_PKG))
		return LEVEL_PKG;
	return from->node == to->node ? LEVEL_NONE : node_level_of(from, to->node);
}

/* CPUs that share no level (an isolated one) count at the last, so that sums stay whole. */
static u32 level_or_last(u32 level)
{
	return level < NR_LEVELS ? level : NR_LEVELS - 1;
}

static bool cpus_share_cache(const struct cpu_place *a, const struct cpu_place *b)
{
	return a->llc == b->llc;
}

#endif /* __RETUNE_DOMAIN_H */
