/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The backstop: a timer that invites for queues whose CPUs cannot do it themselves.
 *
 * The only program here that runs with interrupts on; it counts with atomics in a
 * row of its own.
 */
#ifndef __RETUNE_BACKSTOP_H
#define __RETUNE_BACKSTOP_H

struct backstop {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct backstop);
} backstops SEC(".maps");

/*
 * Return true if no CPU of @queue has run one of our tasks of late: a higher class
 * holds them all, and what waits there can only run elsewhere.
 */
static bool is_unserved(u32 queue, u64 now)
{
	const struct queue_place *place = queue_place_of(queue);
	u32 i;

	if (!place || fault == FAULT_NO_RESCUE)
		return false;
	bpf_for(i, 0, place->nr_cpus) {
		struct cpu_ctx *cctx = cctx_of(member_of(place, i));

		if (cctx && time_before(now, READ_ONCE(cctx->seen_at) + UNSERVED_NS))
			return false;
	}
	return true;
}

/*
 * Invite for every queue where a task waits, flags or no flags where no CPU can
 * serve it. The ticks do the former all the time; the timer is for CPUs that get
 * no ops.tick(), because a real-time task holds them.
 */
static int walk_backstop(void *map, u32 *key, struct backstop *backstop)
{
	u64 now = bpf_ktime_get_ns();
	u32 queue;

	count_from_timer(CNT_BACKSTOP_WALKS);
	/* Up to 6.17 the verifier takes a timer that a sleepable init starts for sleepable too. */
	bpf_rcu_read_lock();
	bpf_for(queue, 0, nr_queues)
		invite_for_queue(queue, now, is_unserved(queue, now));
	bpf_rcu_read_unlock();
	bpf_timer_start(&backstop->timer, BACKSTOP_NS, 0);
	return 0;
}

static int start_backstop(void)
{
	struct backstop *backstop;
	u32 zero = 0;
	int err;

	backstop = bpf_map_lookup_elem(&backstops, &zero);
	if (!backstop)
		return -ENOENT;
	err = bpf_timer_init(&backstop->timer, &backstops, CLOCK_MONOTONIC);
	if (err)
		return err;
	bpf_timer_set_callback(&backstop->timer, walk_backstop);
	return bpf_timer_start(&backstop->timer, BACKSTOP_NS, 0);
}

#endif /* __RETUNE_BACKSTOP_H */
