//! The pipe ring: what a switch between processes costs, and where the processes end up.
//!
//! The job of lmbench's lat_ctx, with its output. N processes are joined to a ring by pipes and hand
//! a token round; each may read through a working set first. What one process alone pays for
//! that (a write, a read, the reading) is measured before and subtracted, so that the rest is
//! the switch and the wakeup. One *pass* is the token once round the ring, N switches.
//!
//! `--start` puts each process on a CPU and lets it go before the token starts: the way to see
//! what a scheduler makes of a pair that begins on two nodes. Times on a virtual or busy machine
//! say little; the placement in the JSON output, sampled while the ring runs, says what was decided.
//!
//! When not to use it: two processes that do nothing but wake each other are the extreme case for
//! WAKE_AFFINE. They say nothing about throughput.

mod member;
mod plan;
#[allow(unsafe_code)]
mod process;
mod report;
mod ring;

use std::io::Write;

pub use plan::CtxArgs;

/// Measures a ring of each size asked for and prints the results; 0 when all was measured.
pub fn run(args: &CtxArgs) -> anyhow::Result<u8> {
    let plans = plan::from_args(args)?;
    ring::raise_file_limit(&plans);
    let overhead_us = ring::overhead_us(args.size)?;
    let mut out = std::io::stdout().lock();
    if !args.json {
        writeln!(out, "{}", report::header(args.size, overhead_us))?;
    }
    for plan in &plans {
        let report = report::Report::new(plan, overhead_us, ring::run(plan)?);
        report.notes().iter().for_each(|note| eprintln!("{note}"));
        write!(out, "{}", report.text(args)?)?;
        out.flush()?;
    }
    Ok(0)
}
