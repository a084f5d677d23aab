/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Idle CPUs: the kernel's own masks, behind one header, because with idle masks
 * per node the flat kfuncs eject us and without them the node ones do.
 *
 * A claim clears the CPU's idle bit. A claimed CPU that is then not used is lost
 * to every later search, so claiming is always the last operand of a condition.
 */
#ifndef __RETUNE_IDLE_H
#define __RETUNE_IDLE_H

struct mask_slot {
	struct bpf_cpumask __kptr *mask;
};

/* The CPUs of each last-level cache; sized by the loader, filled in init. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, struct mask_slot);
	__uint(max_entries, 1);
} llc_masks SEC(".maps");

/* One scratch mask for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, u32);
	__type(value, struct mask_slot);
	__uint(max_entries, 1);
} scratch_masks SEC(".maps");

static int fill_slot(struct mask_slot *slot)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();

	if (!mask)
		return -ENOMEM;
	mask = bpf_kptr_xchg(&slot->mask, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return 0;
}

/* Create the masks of all caches and the scratch masks of all CPUs. */
static int create_masks(void)
{
	u32 i, zero = 0;
	int err = 0;

	bpf_for(i, 0, nr_llcs) {
		struct mask_slot *slot = bpf_map_lookup_elem(&llc_masks, &i);

		if (!slot || (err = fill_slot(slot)))
			return err ?: -ENOENT;
	}
	bpf_for(i, 0, nr_cpu_ids) {
		struct mask_slot *slot = bpf_map_lookup_percpu_elem(&scratch_masks, &zero, i);

		/* The map has possible CPUs only; a hole in the numbers has no slot. */
		if (slot && (err = fill_slot(slot)))
			return err;
	}
	return 0;
}

/* Put every online CPU into the mask of its cache. */
static int fill_llc_masks(void)
{
	s32 cpu;

	bpf_for(cpu, 0, nr_cpu_ids) {
		const struct cpu_place *place = place_of(cpu);
		struct bpf_cpumask *mask;
		struct mask_slot *slot;
		u32 llc;

		if (!place || place->llc >= nr_llcs)
			continue;
		llc = place->llc;
		slot = bpf_map_lookup_elem(&llc_masks, &llc);
		if (!slot)
			return -ENOENT;
		bpf_rcu_read_lock();
		mask = slot->mask;
		if (mask)
			bpf_cpumask_set_cpu(cpu, mask);
		bpf_rcu_read_unlock();
	}
	return 0;
}

static const struct cpumask *llc_mask(u32 llc)
{
	struct mask_slot *slot = bpf_map_lookup_elem(&llc_masks, &llc);

	return slot ? (const struct cpumask *)slot->mask : NULL;
}

static const struct cpumask *get_idle_mask(u32 node_id)
{
	return per_node_idle ? scx_bpf_get_idle_cpumask_node(node_id) : scx_bpf_get_idle_cpumask();
}

static const struct cpumask *get_idle_core_mask(u32 node_id)
{
	return per_node_idle ? scx_bpf_get_idle_smtmask_node(node_id) : scx_bpf_get_idle_smtmask();
}

/* Return the kernel's id of @place's node. */
static u32 node_id_of(const struct cpu_place *place)
{
	const struct node_place *node = node_place_of(place->node);

	return node ? node->id : 0;
}

/* Return true if @cpu is idle; nothing is claimed. */
static bool is_idle(s32 cpu, const struct cpu_place *place)
{
	const struct cpumask *idle = get_idle_mask(node_id_of(place));
	bool ret = bpf_cpumask_test_cpu(cpu, idle);

	scx_bpf_put_idle_cpumask(idle);
	return ret;
}

/* Return true if no thread of @cpu's core is busy; nothing is claimed. */
static bool is_idle_core(s32 cpu, const struct cpu_place *place)
{
	const struct cpumask *idle = get_idle_core_mask(node_id_of(place));
	bool ret = bpf_cpumask_test_cpu(cpu, idle);

	scx_bpf_put_idle_cpumask(idle);
	return ret;
}

/* Claim @cpu for @p if it is idle; with @core only if its whole core is. */
static bool claim_idle(const struct task_struct *p, s32 cpu, const struct cpu_place *place, bool core)
{
	return is_allowed(p, cpu) && (!core || is_idle_core(cpu, place)) &&
	       scx_bpf_test_and_clear_cpu_idle(cpu);
}

static s32 claim_idle_in(const struct cpumask *mask, u32 node_id, u64 flags)
{
	return per_node_idle ?
		       scx_bpf_pick_idle_cpu_node(mask, node_id, flags | SCX_PICK_IDLE_IN_NODE) :
		       scx_bpf_pick_idle_cpu(mask, flags);
}

/* Claim an idle CPU of @place's cache that @p may use; -EBUSY if there is none. */
static s32 claim_idle_in_llc(const struct task_struct *p, const struct cpu_place *place, u64 flags)
{
	const struct cpumask *llc = llc_mask(place->llc);
	u32 node_id = node_id_of(place), zero = 0;
	struct bpf_cpumask *scratch;
	struct mask_slot *slot;

	if (!llc)
		return -EBUSY;
	if (p->nr_cpus_allowed >= nr_cpu_ids || bpf_cpumask_subset(llc, p->cpus_ptr))
		return claim_idle_in(llc, node_id, flags);

	slot = bpf_map_lookup_elem(&scratch_masks, &zero);
	if (!slot || !(scratch = slot->mask))
		return -EBUSY;
	if (!bpf_cpumask_and(scratch, llc, p->cpus_ptr))
		return -EBUSY;
	return claim_idle_in(cast_mask(scratch), node_id, flags);
}

/*
 * Claim an idle CPU for @p that shares @target's cache, as select_idle_sibling()
 * (kernel/sched/fair.c) orders them: target, the previous CPU, the one used
 * before it, any. With SMT the whole order is tried on idle cores first.
 */
static s32 claim_idle_near(const struct task_struct *p, const struct task_ctx *tctx, s32 target, s32 prev,
			   bool core)
{
	const struct cpu_place *there = place_of(target), *before = place_of(prev), *recent;
	s32 cpu;

	if (!there || !before)
		return -EINVAL;
	if (claim_idle(p, target, there, core)) {
		count(CNT_SELECT_IDLE_TARGET);
		return target;
	}
	if (prev != target && cpus_share_cache(before, there) && claim_idle(p, prev, before, core)) {
		count(CNT_SELECT_IDLE_PREV);
		return prev;
	}
	cpu = tctx->recent_cpu;
	recent = place_of(cpu);
	if (cpu >= 0 && cpu != target && cpu != prev && recent && cpus_share_cache(recent, there) &&
	    claim_idle(p, cpu, recent, core)) {
		count(CNT_SELECT_IDLE_RECENT);
		return cpu;
	}
	cpu = claim_idle_in_llc(p, there, core ? SCX_PICK_IDLE_CORE : 0);
	if (cpu >= 0)
		count(CNT_SELECT_IDLE_LLC);
	return cpu;
}

/* ---- how long CPUs idle ---- */

/* Average over 8 periods; the cap keeps one long sleep from opening every gate. */
static void note_idle_end(struct cpu_ctx *cctx, u64 now)
{
	s64 slept = now - cctx->idle_at;
	s64 capped;

	if (!cctx->idle_at)
		return;
	/* rq->max_idle_balance_cost doubles as the kernel's cap: 2 x 500 us at least. */
	capped = slept < 0 ? 0 : slept > AVG_IDLE_CAP_NS ? AVG_IDLE_CAP_NS : slept;
	cctx->avg_idle_ns += (capped - (s64)cctx->avg_idle_ns) / 8;
	cctx->idle_at = 0;
}

#endif /* __RETUNE_IDLE_H */
