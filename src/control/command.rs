//! The subcommands that are one request: get, set, history, attach, detach.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;

use super::client::ask;
use super::history::Entry;
use super::hold;
use super::{Request, Response, SetReport};
use crate::cli::SocketArgs;
use crate::view::plain_table;

#[derive(Args, Debug)]
pub struct GetArgs {
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print one line of assignments that `set` takes back
    #[arg(long, conflicts_with = "json")]
    pub plain: bool,
}

#[derive(Args, Debug)]
pub struct SetArgs {
    /// LEVEL[@SET].FLAG=on|off[,...] or a preset: mainline, none, all, 2009-before,
    /// 2009-affine, 2009-newidle
    #[arg(required = true, value_name = "ASSIGNMENT")]
    pub assignments: Vec<String>,
    /// Undo it when COMMAND ends or, without one, when standard input ends or ctrl-C comes;
    /// the scheduler does so too when this process is killed
    #[arg(long)]
    pub lease: bool,
    /// With --lease: run this and return its exit code
    #[arg(last = true, requires = "lease", value_name = "COMMAND")]
    pub command: Vec<String>,
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct HistoryArgs {
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct AttachmentArgs {
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub fn get(args: &GetArgs) -> Result<u8> {
    let response = ask(&args.socket.socket, &Request::Get)?;
    let Response::Flags { table, plain, view, is_attached } = response else {
        bail!("the scheduler answered something else than flags");
    };
    match (args.json, args.plain) {
        (true, _) => println!("{}", serde_json::to_string_pretty(&view)?),
        (_, true) => println!("{plain}"),
        _ => println!("{table}"),
    }
    if !is_attached {
        eprintln!("detached: these flags take effect at the next `scx_retune attach`");
    }
    Ok(0)
}

pub fn set(args: &SetArgs) -> Result<u8> {
    if args.lease {
        return hold::hold(args);
    }
    let request = Request::Set { assignments: args.assignments.join(",") };
    let Response::Set(report) = ask(&args.socket.socket, &request)? else {
        bail!("the scheduler answered something else than a set");
    };
    println!("{}", told(&report, args.json)?);
    Ok(0)
}

/// The report for stdout; what a preset left out goes to stderr, for JSON has it already.
pub(super) fn told(report: &SetReport, json: bool) -> Result<String> {
    if json {
        return Ok(serde_json::to_string(report)?);
    }
    report.left_out.iter().for_each(|flag| eprintln!("left out: {flag}"));
    let later = match report.is_in_effect {
        true => "",
        false => "; detached: takes effect at the next `scx_retune attach`",
    };
    Ok(format!(
        "generation {}: {} words changed at {}{later}",
        report.generation,
        report.words_changed,
        seconds(report.at_unix_ns)
    ))
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

pub fn history(args: &HistoryArgs) -> Result<u8> {
    let Response::History(entries) = ask(&args.socket.socket, &Request::History)? else {
        bail!("the scheduler answered something else than a history");
    };
    match args.json {
        true => println!("{}", serde_json::to_string(&entries)?),
        false => println!("{}", history_table(&entries)),
    }
    Ok(0)
}

fn history_table(entries: &[Entry]) -> String {
    let mut table = plain_table(&["GENERATION", "TIME", "WORDS", "BY", "PID", "ASSIGNMENTS"]);
    for entry in entries {
        table.add_row([
            entry.generation.to_string(),
            seconds(entry.at_unix_ns),
            entry.words_changed.to_string(),
            entry.cause.to_string(),
            entry.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            entry.assignments.clone(),
        ]);
    }
    table.trim_fmt()
}

pub fn attach(args: &AttachmentArgs) -> Result<u8> {
    switch(args, &Request::Attach)
}

pub fn detach(args: &AttachmentArgs) -> Result<u8> {
    switch(args, &Request::Detach)
}

fn switch(args: &AttachmentArgs, request: &Request) -> Result<u8> {
    let path: &Path = &args.socket.socket;
    let Response::Attachment(report) = ask(path, request)? else {
        bail!("the scheduler answered something else than its attachment");
    };
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(0);
    }
    println!(
        "{}{}: epoch {}, generation {}",
        if report.has_changed { "" } else { "already " },
        if report.is_attached { "attached" } else { "detached" },
        report.epoch,
        report.generation
    );
    Ok(0)
}
