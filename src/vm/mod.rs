//! `scx_retune vm`: boots a kernel with a NUMA topology and runs a command in it.
//!
//! The guest is virtme-ng's: the host's own file system, read only, with changes kept in the guest's
//! memory. So programs that were just built run in it as they are. The command starts in the
//! caller's directory; its output and exit code come back. Under emulation the topology is real and
//! its costs are not: a far node's memory is as fast as a near one's.
//!
//! `shape` says what the machine looks like, `tools` finds the programs and the kernel, `kvm` whether
//! it may run on the processor itself, `guest` is what runs inside, `process` the group that ends
//! with us, `boot` joins them. Wrong choice: to measure time. See docs/vm.md.

mod boot;
mod guest;
mod kvm;
mod process;
pub mod shape;
mod tools;

use std::env;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::boot::{INTERRUPTED, Limits, Machine};
use self::guest::Job;
use self::shape::Shape;
use self::tools::{Kernel, Tools};
use crate::error::Error;

const AFTER_HELP: &str = "\
SHAPE is NODESn [LLCSl] CORESc [THREADSt] [:DISTANCES], where LLCS and CORES count within the level above:
  4n4c            4 nodes of 4 CPUs, distances 12, 20 and 22
  2n2l2c2t        2 nodes, each 2 last-level caches of 2 cores with 2 threads, distance 21
  8n2c:ring       8 nodes in a ring, distances 16, 22, 28, 34 by hops
  4n4c:line       4 nodes in a line, distances 20, 30, 40 by hops
  2n4c:dist=10,15;18,10   any matrix, one row for each node";

/// Boot a virtual machine with a NUMA topology and run a command in it
#[derive(clap::Args, Debug, Clone)]
#[command(after_help = AFTER_HELP)]
pub struct VmArgs {
    /// Topology of the guest (see below)
    #[arg(long, value_name = "SHAPE", default_value = "4n4c")]
    pub topo: String,

    /// Kernel: an image, a directory that holds one, or a series that scripts/setup fetched (6.18)
    #[arg(long, value_name = "FILE|DIR")]
    pub kernel: Option<PathBuf>,

    /// Memory of the guest, dealt out evenly to its nodes
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_memory)]
    pub memory: u64,

    /// End the guest when the command has not ended by then
    #[arg(long, value_name = "SECS", default_value_t = 600)]
    pub timeout: u64,

    /// End a guest that has not booted by then, and try once more
    #[arg(long, value_name = "SECS", default_value_t = 90)]
    pub boot_timeout: u64,

    /// Set a variable for the command; others than PATH, HOME and LANG are not passed on
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub env: Vec<(String, String)>,

    /// Add kernel parameters
    #[arg(long, value_name = "PARAMETERS", allow_hyphen_values = true)]
    pub append: Vec<String>,

    /// Let the guest write to this directory of the host
    #[arg(long, value_name = "DIR")]
    pub writable: Vec<PathBuf>,

    /// Keep the guest's console in a file
    #[arg(long, value_name = "FILE")]
    pub console: Option<PathBuf>,

    /// Command and its arguments; without one, say what the guest is
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Boots the guest and returns the exit code of the command in it.
pub fn run(args: &VmArgs) -> anyhow::Result<u8> {
    let shape: Shape = args.topo.parse()?;
    check_memory(args.memory, &shape)?;
    let directory = env::current_dir()?;
    let writable = real_directories(&args.writable)?;
    let tools = Tools::find()?;
    let kernel = Kernel::find(&tools, args.kernel.as_deref())?;
    end_on_signals();
    let machine = Machine {
        tools: &tools,
        kernel: &kernel,
        shape: &shape,
        accelerator: kvm::accelerator(&tools, &kernel),
        memory_mib: args.memory,
        append: &args.append,
        writable: &writable,
        console: args.console.as_deref(),
    };
    let command = command_or_default(&args.command);
    let env = environment(&args.env);
    let config = kernel.config.as_deref();
    let job = Job { command: &command, directory: &directory, env: &env, config };
    Ok(boot::run(&machine, &job, &limits(args))?)
}

fn limits(args: &VmArgs) -> Limits {
    Limits {
        boot: Duration::from_secs(args.boot_timeout),
        total: Duration::from_secs(args.timeout),
    }
}

/// Another part of the process may have a handler already; then that one decides.
fn end_on_signals() {
    let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
}

fn command_or_default(command: &[String]) -> Vec<String> {
    if !command.is_empty() {
        return command.to_vec();
    }
    let tell = "uname -a; lscpu -e; cd /sys/devices/system/node; grep . node*/distance";
    ["sh", "-c", tell].map(String::from).into()
}

/// The file system is the host's, so its PATH and HOME are right; the rest stays outside.
fn environment(wanted: &[(String, String)]) -> Vec<(String, String)> {
    let path = env::var("PATH").unwrap_or_default();
    let mut vars = vec![("PATH".to_string(), format!("{path}:/usr/sbin:/usr/bin:/sbin:/bin"))];
    let kept = ["HOME", "LANG"].into_iter().filter_map(|name| Some((name, env::var(name).ok()?)));
    vars.extend(kept.map(|(name, value)| (name.to_string(), value)));
    vars.extend_from_slice(wanted);
    vars
}

fn real_directories(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let real = |dir: &PathBuf| {
        dir.canonicalize().map_err(|why| {
            let dir = dir.display();
            Error::usage(format!("--writable {dir}: {why}; name a directory that is there"))
        })
    };
    dirs.iter().map(real).collect()
}

/// A node with less does not boot: the kernel gives its memory to others, and the node vanishes.
const NODE_MIB_MIN: u64 = 64;

fn check_memory(memory_mib: u64, shape: &Shape) -> Result<(), Error> {
    let least = NODE_MIB_MIN * shape.nodes as u64;
    if memory_mib >= least {
        return Ok(());
    }
    let nodes = shape.nodes;
    Err(Error::usage(format!(
        "--memory {memory_mib}M is too little for {nodes} nodes; give {least}M or more"
    )))
}

/// "4G" or "512M", in MiB.
fn parse_memory(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a size: give a number with M or G, such as 4G");
    let (number, factor) = match (text.strip_suffix('G'), text.strip_suffix('M')) {
        (Some(number), _) => (number, 1024),
        (_, Some(number)) => (number, 1),
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).ok_or_else(wrong)
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) => Ok((name.into(), value.into())),
        _ => Err(format!("\"{text}\" is not NAME=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_takes_m_and_g() {
        assert_eq!(parse_memory("2G"), Ok(2048));
        assert_eq!(parse_memory("512M"), Ok(512));
        for wrong in ["", "G", "4", "4T", "-1G", "99999999999999999999G"] {
            assert!(parse_memory(wrong).unwrap_err().contains("such as 4G"), "{wrong}");
        }
    }

    #[test]
    fn memory_must_do_for_every_node() {
        let shape = "8n2c".parse().unwrap();
        assert!(check_memory(512, &shape).is_ok());
        assert!(check_memory(511, &shape).unwrap_err().message.contains("512M or more"));
    }

    #[test]
    fn a_variable_has_a_shell_name() {
        assert_eq!(parse_variable("A_1=b=c"), Ok(("A_1".into(), "b=c".into())));
        for wrong in ["", "A", "=b", "1A=b", "a b=c", "A;id=b"] {
            assert!(parse_variable(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wanted_variable_comes_after_the_inherited_ones() {
        let vars = environment(&[("PATH".into(), "/x".into())]);
        assert_eq!(vars.last().unwrap().1, "/x");
    }
}
