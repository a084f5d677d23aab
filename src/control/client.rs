//! The client's side: one request, one answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{Request, Response, failure_of};
use crate::cli::{GetArgs, SocketArgs};
use crate::error::Error;

/// How long an answer may take: a scheduler that is attached anew needs seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Args, Debug)]
pub struct SetArgs {
    /// LEVEL[@SET].FLAG=on|off[,...] or a preset: mainline, none, all, 2009-before,
    /// 2009-affine, 2009-newidle
    #[arg(required = true, value_name = "ASSIGNMENT")]
    pub assignments: Vec<String>,
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Asks the running scheduler and returns its answer.
///
/// Errors: no scheduler listens there (exit code 3), or the answer is a refusal, with the
/// exit code of its kind.
pub fn ask(socket: &Path, request: &Request) -> Result<Response> {
    let mut stream = connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).context("cannot send the request")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).context("no answer from the scheduler")?;
    match serde_json::from_str(&answer).context("cannot read the scheduler's answer")? {
        Response::Error { code, message } => Err(failure_of(code, message).into()),
        response => Ok(response),
    }
}

fn connect(socket: &Path) -> Result<UnixStream, Error> {
    UnixStream::connect(socket).map_err(|why| {
        Error::environment(format!(
            "cannot reach a running scx_retune at {}: {why}; start `scx_retune run`, or name its \
             socket with --socket",
            socket.display()
        ))
    })
}

pub fn get(args: &GetArgs) -> Result<u8> {
    let Response::Flags { table, plain, view } = ask(&args.socket.socket, &Request::Get)? else {
        bail!("the scheduler answered something else than flags");
    };
    match (args.json, args.plain) {
        (true, _) => println!("{}", serde_json::to_string_pretty(&view)?),
        (_, true) => println!("{plain}"),
        _ => println!("{table}"),
    }
    Ok(0)
}

pub fn set(args: &SetArgs) -> Result<u8> {
    let request = Request::Set { assignments: args.assignments.join(",") };
    let Response::Set(report) = ask(&args.socket.socket, &request)? else {
        bail!("the scheduler answered something else than a set");
    };
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(0);
    }
    println!(
        "generation {}: {} words changed at {}.{:09}",
        report.generation,
        report.words_changed,
        report.at_unix_ns / 1_000_000_000,
        report.at_unix_ns % 1_000_000_000
    );
    report.left_out.iter().for_each(|flag| eprintln!("left out: {flag}"));
    Ok(0)
}
