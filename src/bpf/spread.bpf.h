/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spreading: BALANCE_FORK and BALANCE_WAKE look beyond the target's cache for the
 * place with the most idle CPUs, as sched_balance_find_dst_cpu() does
 * (kernel/sched/fair.c): nodes first, then caches of the chosen node, then a CPU.
 *
 * Only idle CPUs count as spare capacity; a machine without any leaves the task on
 * the side it came from, where deadlines and new-idle balance take over.
 */
#ifndef __RETUNE_SPREAD_H
#define __RETUNE_SPREAD_H

/* Return how many CPUs of @mask are idle and allowed for @p. */
static u32 nr_idle_in(const struct task_struct *p, u32 node_id, const struct cpumask *mask)
{
	const struct cpumask *idle;
	struct bpf_cpumask *scratch;
	struct mask_slot *slot;
	u32 zero = 0, nr = 0;

	slot = bpf_map_lookup_elem(&scratch_masks, &zero);
	if (!slot || !(scratch = slot->mask))
		return 0;
	idle = get_idle_mask(node_id);
	bpf_cpumask_and(scratch, idle, p->cpus_ptr);
	scx_bpf_put_idle_cpumask(idle);
	if (mask)
		bpf_cpumask_and(scratch, cast_mask(scratch), mask);
	nr = bpf_cpumask_weight(cast_mask(scratch));
	return nr;
}

/*
 * How many tasks a node may run before new ones go elsewhere: one per cache, or an
 * eighth of the node's CPUs (imb_numa_nr, kernel/sched/topology.c).
 */
static u32 allowed_imbalance(const struct node_place *node, const struct cpu_place *here)
{
	const struct llc_place *llc = llc_of(here->llc);

	if (!llc || !llc->nr_cpus)
		return 1;
	if (node->nr_cpus > llc->nr_cpus)
		return node->nr_cpus / llc->nr_cpus;
	return node->nr_cpus >= 16 ? node->nr_cpus / 8 : 1;
}

/* Return the node with the most idle CPUs among @here's own and those at @levels. */
static u32 pick_node(const struct task_struct *p, const struct cpu_place *here, u32 levels)
{
	const struct node_place *own = node_place_of(here->node), *place;
	u32 best = here->node, best_idle, idle, i, node, level;

	if (!own)
		return best;
	best_idle = nr_idle_in(p, own->id, NULL);
	if (own->nr_cpus - best_idle + 1 <= allowed_imbalance(own, here))
		return best;
	bpf_for(i, 0, nr_nodes - 1) {
		node = nearest_node(here->node, i);
		level = node_level_of(here, node);
		place = node_place_of(node);
		if (!place || level >= NR_LEVELS || !(levels & (1U << level)))
			continue;
		idle = nr_idle_in(p, place->id, NULL);
		if (idle > best_idle) {
			best = node;
			best_idle = idle;
		}
	}
	return best;
}

/* Return the cache of @node with the most idle CPUs; @own wins a tie. */
static u32 pick_llc(const struct task_struct *p, u32 node, u32 own)
{
	const struct node_place *place = node_place_of(node);
	u32 best = nr_llcs, best_idle = 0, i, idle;

	if (!place)
		return own;
	bpf_for(i, 0, place->nr_groups) {
		const struct group_place *group = group_place_of(place->first_group + i);
		const struct cpumask *mask;

		if (!group || group->llc == best || !(mask = llc_mask(group->llc)))
			continue;
		idle = nr_idle_in(p, place->id, mask);
		if (idle > best_idle || (idle && idle == best_idle && group->llc == own)) {
			best = group->llc;
			best_idle = idle;
		}
	}
	return best;
}

/*
 * Claim an idle CPU for @p where there is the most room, as far as @levels of
 * @this_cpu's word allow; -EBUSY if there is none.
 */
static s32 claim_idle_far(const struct task_struct *p, s32 this_cpu, u32 levels)
{
	const struct cpu_place *here = place_of(this_cpu), *there;
	const struct group_place *group;
	const struct node_place *place;
	const struct llc_place *llc;
	u32 node, chosen;
	const u32 above_pkg = ~((1U << LEVEL_NUMA1) - 1);
	s32 cpu;

	if (!here || !(levels &= here->levels))
		return -EBUSY;
	node = levels & above_pkg ? pick_node(p, here, levels) : here->node;
	if (node == here->node && !(levels & (1U << LEVEL_PKG)))
		chosen = here->llc;
	else
		chosen = pick_llc(p, node, here->llc);
	llc = llc_of(chosen);
	if (!llc || !(place = node_place_of(llc->node)) || !(group = group_place_of(llc->first_group)))
		return -EBUSY;
	there = place_of(first_cpu_of(group));
	if (!there)
		return -EBUSY;
	cpu = smt ? claim_idle_in_llc(p, there, SCX_PICK_IDLE_CORE) : -EBUSY;
	return cpu >= 0 ? cpu : claim_idle_in_llc(p, there, 0);
}

#endif /* __RETUNE_SPREAD_H */
