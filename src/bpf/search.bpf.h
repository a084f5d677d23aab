/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Search: which queue a puller takes from.
 *
 * Hints say where to look: one word per node of the level, one per group that the
 * node's word names, then at most NR_QUEUES_READ queues, whatever the machine's
 * size. A queue that turns out to be empty loses its hint here.
 */
#ifndef __RETUNE_SEARCH_H
#define __RETUNE_SEARCH_H

struct search {
	s32 cpu; /* the puller */
	u32 level;
	u32 start; /* rotates */
	u32 nr_left; /* queues that may still be read */
	u32 queue; /* the best so far, nr_queues: none */
	u64 load;
};

/* Take @queue if its load is the heaviest so far; take its hint back if it is empty. */
static void consider_queue(struct search *s, u32 queue)
{
	struct queue *q = queue_of(queue);
	u64 load;

	if (!q)
		return;
	load = READ_ONCE(q->movable);
	if (!load)
		unhint_if_empty(queue);
	else if (s->queue >= nr_queues || (load & (LOAD_ONE - 1)) > s->load) {
		s->queue = queue;
		s->load = load & (LOAD_ONE - 1);
	}
}

/* Return the lowest set bit of @word at or after @start, cyclically. */
static u32 next_bit(u64 word, u32 start)
{
	u64 rotated = start ? word >> start | word << (64 - start) : word;

	return (__builtin_ctzll(rotated) + start) % 64;
}

/* Look at the flagged queues of @group that the puller sees at the search's level. */
static void search_group(struct search *s, u32 group)
{
	const struct group_place *place = group_place_of(group);
	const struct cpu_place *here = place_of(s->cpu), *there;
	struct hints *hints = group_hints_of(group);
	const struct queue_place *qplace;
	u64 word;
	u32 i, bit, queue;

	if (!place || !here || !hints)
		return;
	word = fault == FAULT_NO_HINTS ? ~0ULL : READ_ONCE(hints->word);
	bpf_for(i, 0, 64) {
		if (!word || !s->nr_left)
			break;
		bit = next_bit(word, s->start % 64);
		word &= ~(1ULL << bit);
		queue = place->first_queue + bit;
		qplace = queue_place_of(queue);
		if (!qplace || queue == here->queue || !(there = place_of(qplace->cpu)))
			continue;
		if (common_level(here, there) != s->level)
			continue;
		s->nr_left--;
		count_at(s->level, LCNT_LB_QUEUES_READ);
		consider_queue(s, queue);
	}
}

/* Look at the groups of @node that have hints; one word says which. */
static void search_node(struct search *s, u32 node)
{
	const struct node_place *place = node_place_of(node);
	struct hints *hints = node_hints_of(node);
	u64 word;
	u32 i, bit;

	if (!place || !hints)
		return;
	word = fault == FAULT_NO_HINTS ? (1ULL << (place->nr_groups % 64)) - 1 : READ_ONCE(hints->word);
	bpf_for(i, 0, 64) {
		if (!word || !s->nr_left)
			break;
		bit = next_bit(word, s->start % 64);
		word &= ~(1ULL << bit);
		search_group(s, place->first_group + bit);
	}
}

/* Look at the nodes that the puller sees at the search's level, nearest first. */
static void search_far_nodes(struct search *s, const struct cpu_place *here)
{
	u32 i, node;

	bpf_for(i, 0, nr_nodes - 1) {
		node = nearest_node(here->node, i);
		if (node_level(here->node, node) == s->level)
			search_node(s, node);
	}
}

/*
 * Find the heaviest of at most NR_QUEUES_READ flagged queues that the level adds.
 *
 * Not static: the verifier walks a global function once, on its own, instead of once
 * for each level that newidle_balance() tries (429,191 instructions in dispatch on
 * 6.16 before, 164,651 since).
 */
__noinline u32 find_busiest_queue(s32 cpu, u32 level)
{
	const struct cpu_place *here = place_of(cpu);
	struct cpu_ctx *cctx = cctx_of(cpu);
	struct search s = {
		.cpu = cpu,
		.level = level,
		.nr_left = NR_QUEUES_READ,
		.queue = nr_queues,
	};

	if (!here || !cctx)
		return nr_queues;
	s.start = cctx->scan_start++;
	if (level < NR_LOCAL_LEVELS)
		search_node(&s, here->node);
	else
		search_far_nodes(&s, here);
	return s.queue;
}

#endif /* __RETUNE_SEARCH_H */
