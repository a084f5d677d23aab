//! The command line: one tree, from which help, completions and man pages come.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::control::DEFAULT_SOCKET;
use crate::control::command::{self, AttachmentArgs, GetArgs, HistoryArgs, SetArgs};
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
    /// Load the scheduler and serve the other subcommands until it is stopped
    Run(RunArgs),
    /// Print each flag at each level
    Get(GetArgs),
    /// Change flags of the running scheduler: all assignments, or none
    Set(SetArgs),
    /// Print the last changes of the flags
    History(HistoryArgs),
    /// Load the scheduler of a run that was detached
    Attach(AttachmentArgs),
    /// Unload the scheduler; the run keeps its socket, flags, generation and history
    Detach(AttachmentArgs),
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

impl Cli {
    /// Runs the command; the value is the process's exit code.
    pub fn run(&self) -> Result<u8> {
        match &self.command {
            Command::Run(args) => run::run(args),
            Command::Get(args) => command::get(args),
            Command::Set(args) => command::set(args),
            Command::History(args) => command::history(args),
            Command::Attach(args) => command::attach(args),
            Command::Detach(args) => command::detach(args),
            Command::Stats(args) => view::stats::stats(args),
            Command::Topo(args) => topology::command::run(args),
            Command::Ctx(args) => ctx::run(args),
            Command::Vm(args) => vm::run(args),
            Command::Completions(args) => manual::completions(args, Cli::command()),
            Command::Man(args) => manual::man(args, Cli::command()),
        }
    }
}
