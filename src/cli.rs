//! The command line: one tree, from which help, completions and man pages come.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::control::DEFAULT_SOCKET;
use crate::control::client::{self, SetArgs};
use crate::ctx::{self, CtxArgs};
use crate::sched::run::{self, RunArgs};
use crate::topology::{self, command::TopoArgs};
use crate::view::manual::{self, CompletionsArgs, ManArgs};
use crate::view::{self, stats::StatsArgs};
use crate::vm::{self, VmArgs};

/// Turn the kernel's scheduling-domain flags while a workload runs.
///
/// Exit codes: 0 done; 1 a finding; 2 usage; 3 this machine cannot do it;
/// 4 the kernel ejected the scheduler.
#[derive(Parser, Debug)]
#[command(name = "scx_retune", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Load the scheduler and serve get, set and stats until it is stopped
    Run(RunArgs),
    /// Print each flag at each level
    Get(GetArgs),
    /// Change flags of the running scheduler: all assignments, or none
    Set(SetArgs),
    /// Print what the scheduler counted, by level, domain and CPU
    Stats(StatsArgs),
    Topo(TopoArgs),
    /// Measure a ring of pipes, as lmbench's lat_ctx does
    Ctx(CtxArgs),
    Vm(VmArgs),
    /// Print a script that completes this command line in a shell
    Completions(CompletionsArgs),
    /// Write a man page for each subcommand
    Man(ManArgs),
}

/// Where the running scheduler listens.
#[derive(Args, Debug, Clone)]
pub struct SocketArgs {
    /// Socket of the running scheduler
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

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

impl Cli {
    /// Runs the command; the value is the process's exit code.
    pub fn run(&self) -> Result<u8> {
        match &self.command {
            Command::Run(args) => run::run(args),
            Command::Get(args) => client::get(args),
            Command::Set(args) => client::set(args),
            Command::Stats(args) => view::stats::stats(args),
            Command::Topo(args) => topology::command::run(args),
            Command::Ctx(args) => ctx::run(args),
            Command::Vm(args) => vm::run(args),
            Command::Completions(args) => manual::completions(args, Cli::command()),
            Command::Man(args) => manual::man(args, Cli::command()),
        }
    }
}
