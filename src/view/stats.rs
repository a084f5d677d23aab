//! `scx_retune stats`: what the scheduler and the kernel counted; once, again and again, or judged.

use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::counters::{By, Counted, Tables, named_levels};
use super::print;
use crate::cli::SocketArgs;
use crate::control::client::ask;
use crate::control::{Request, Response};
use crate::error::{Error, Kind};
use crate::stats::events::{self, EVENTS_FILE};
use crate::stats::json::{Document, Reading};
use crate::stats::{LAWS, Row, Snapshot, Standing, Verdict, verdicts};
use crate::topology::Machine;

/// How often `--laws` reads, and how long it waits in between: 2 s in all (chosen), for the
/// machine to have a quiet moment.
const LAW_READS: usize = 20;
const LAW_INTERVAL: Duration = Duration::from_millis(100);
/// Clears the screen, for `--watch` on a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(Args, Debug)]
pub struct StatsArgs {
    #[command(flatten)]
    pub socket: SocketArgs,
    /// What to print a row for; several are separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [By::Level, By::Domain, By::Machine])]
    pub by: Vec<By>,
    /// Print rows of zeros too
    #[arg(long)]
    pub all: bool,
    /// Print every counter of every CPU as JSON, with --watch a line for each interval
    #[arg(long, conflicts_with_all = ["by", "all"])]
    pub json: bool,
    /// Print what was counted since FILE, an earlier `stats --json`, with rates per second
    #[arg(long, value_name = "FILE")]
    pub since: Option<PathBuf>,
    /// Print what was counted in every SECS seconds, with rates, until ctrl-C
    #[arg(long, value_name = "SECS", value_parser = seconds, conflicts_with = "since")]
    pub watch: Option<Duration>,
    /// Say whether the laws between the counters hold; exit with 1 if one is broken
    #[arg(long, conflicts_with_all = ["by", "all", "json", "since", "watch"])]
    pub laws: bool,
}

/// A duration that a person can watch: 0.1 s to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match (0.1..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("from 0.1 to 86400 seconds".to_owned()),
    }
}

pub fn stats(args: &StatsArgs) -> Result<u8> {
    match args.watch {
        _ if args.laws => laws(args),
        Some(interval) => watch(args, interval),
        None => once(args),
    }
}

fn once(args: &StatsArgs) -> Result<u8> {
    let now = read(args)?;
    let interval = args.since.as_ref().map(|file| since(&now, file)).transpose()?;
    print(&show(args, &Counted { now: &now, interval: interval.as_ref() })?)?;
    Ok(0)
}

/// Asks the scheduler, then reads the kernel's events.
///
/// Errors: a scheduler of another build, whose numbers would get wrong names.
fn read(args: &StatsArgs) -> Result<Reading> {
    let Response::Stats(snapshot) = ask(&args.socket.socket, &Request::Stats)? else {
        bail!("the scheduler answered something else than counters");
    };
    if !snapshot.rows.iter().all(Row::is_named) {
        return Err(Error::environment(
            "cannot name the counters: the running scheduler is of another build than this \
             command; use the scx_retune that runs",
        )
        .into());
    }
    Ok(Reading { snapshot: *snapshot, events: events::read(Path::new(EVENTS_FILE)) })
}

fn show(args: &StatsArgs, counted: &Counted) -> Result<String> {
    let machine = Machine::from_root(Path::new("/"))?;
    if args.json {
        let document = Document::new(counted.now, counted.interval, &named_levels(&machine));
        return Ok(serde_json::to_string(&document)? + "\n");
    }
    Ok(Tables { machine: &machine, by: &args.by, all: args.all }.render(counted))
}

fn since(now: &Reading, file: &Path) -> Result<Reading> {
    let text = fs::read_to_string(file)
        .map_err(|why| Error::usage(format!("cannot read {}: {why}", file.display())))?;
    let document: Document = serde_json::from_str(&text).map_err(|why| {
        Error::usage(format!("{} is not a `stats --json`: {why}", file.display()))
    })?;
    let earlier = document.reading().map_err(|why| {
        Error::usage(format!("cannot subtract {}: {why}; take it again", file.display()))
    })?;
    now.since(&earlier).ok_or_else(|| {
        let message = format!(
            "cannot subtract {}: the scheduler was attached anew since then; take it again",
            file.display()
        );
        Error::usage(message).into()
    })
}

/// Prints an interval after the other, until ctrl-C or until nobody reads any more.
fn watch(args: &StatsArgs, interval: Duration) -> Result<u8> {
    let stop = stop_on_signal()?;
    let mut before = read(args)?;
    let mut next = Instant::now() + interval;
    while !has_stopped(&stop, next) {
        next += interval;
        let now = read(args)?;
        match now.since(&before) {
            Some(counted) => {
                let text = show(args, &Counted { now: &now, interval: Some(&counted) })?;
                if !print(&framed(args, text))? {
                    break;
                }
            }
            None => eprintln!("scx_retune: {}", attached_anew(&before.snapshot, &now.snapshot)),
        }
        before = now;
    }
    Ok(0)
}

/// An interval's text: on a fresh screen on a terminal, elsewhere with an empty line after tables.
fn framed(args: &StatsArgs, text: String) -> String {
    match (args.json, stdout().is_terminal()) {
        (true, _) => text,
        (false, true) => CLEAR.to_owned() + &text,
        (false, false) => text + "\n",
    }
}

fn attached_anew(before: &Snapshot, now: &Snapshot) -> String {
    format!(
        "the scheduler was attached anew (attachment {}, before {}): counting from the start",
        now.epoch, before.epoch
    )
}

fn stop_on_signal() -> Result<Receiver<()>> {
    let (sender, receiver) = channel();
    // A second signal finds nobody listening: the first one ended the loop.
    let handler = move || {
        let _ = sender.send(());
    };
    ctrlc::set_handler(handler).context("cannot catch ctrl-C")?;
    Ok(receiver)
}

/// Waits until `deadline`; true where a signal came first.
fn has_stopped(stop: &Receiver<()>, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    !matches!(stop.recv_timeout(left), Err(RecvTimeoutError::Timeout))
}

fn laws(args: &StatsArgs) -> Result<u8> {
    let verdicts = settled(|| Ok(read(args)?.snapshot))?;
    print(&report(&verdicts))?;
    let is_broken = verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Broken);
    Ok(if is_broken { Kind::Finding as u8 } else { 0 })
}

/// Reads until every law held once, or as often as can be.
fn settled(mut read: impl FnMut() -> Result<Snapshot>) -> Result<Vec<(Standing, Verdict)>> {
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for _ in 0..LAW_READS {
        let now = read()?;
        if snapshots.last().is_some_and(|before| now.since(before).is_none()) {
            snapshots.clear();
        }
        snapshots.push(now);
        let verdicts = verdicts(&snapshots);
        if verdicts.iter().all(|(_, verdict)| *verdict == Verdict::Holds) {
            return Ok(verdicts);
        }
        std::thread::sleep(LAW_INTERVAL);
    }
    Ok(verdicts(&snapshots))
}

/// One line for each law that does not hold, or one line for all.
fn report(verdicts: &[(Standing, Verdict)]) -> String {
    let line = |(standing, verdict): &(Standing, Verdict)| match verdict {
        Verdict::Holds => None,
        Verdict::Broken => Some(format!("broken: {standing}\n")),
        Verdict::Unclear => Some(format!("unclear on a busy machine, ask again: {standing}\n")),
    };
    let lines: String = verdicts.iter().filter_map(line).collect();
    if lines.is_empty() { format!("all {} laws hold\n", LAWS.len()) } else { lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::intf::cpu_counter_CNT_DISPATCH;

    fn snapshot(epoch: u64, dispatches: u64) -> Snapshot {
        let mut row = Row::zero();
        row.cpu[cpu_counter_CNT_DISPATCH as usize] = dispatches;
        Snapshot { epoch, rows: vec![row], ..Snapshot::default() }
    }

    fn judged(reads: &[Snapshot]) -> String {
        let mut reads = reads.iter().cycle().cloned();
        report(&settled(|| Ok(reads.next().unwrap())).unwrap())
    }

    #[test]
    fn seconds_are_what_a_person_can_watch() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "1e9", "nan", "five", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_law_that_never_holds_is_named_and_others_are_not() {
        let text = judged(&[snapshot(1, 3)]);
        assert!(text.starts_with("broken: dispatch: dispatch = disp_kept"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn one_quiet_read_is_enough() {
        let text = judged(&[snapshot(1, 0), snapshot(1, 2)]);
        assert_eq!(text, format!("all {} laws hold\n", LAWS.len()));
    }

    #[test]
    fn another_attachment_begins_anew() {
        let text = attached_anew(&snapshot(1, 9), &snapshot(2, 1));
        assert!(text.contains("attachment 2, before 1"), "{text}");
    }
}
