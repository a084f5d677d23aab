//! Shell completions and man pages, made from the one command-line tree.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

use super::print;

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub shell: KnownShell,
}

/// The shells that people who administer Linux servers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Where to write the pages; made if it does not exist
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

pub fn completions(args: &CompletionsArgs, tree: Command) -> Result<u8> {
    print(&completions_of(args.shell, tree)?)?;
    Ok(0)
}

fn completions_of(shell: KnownShell, mut tree: Command) -> Result<String> {
    let shell = match shell {
        KnownShell::Bash => Shell::Bash,
        KnownShell::Zsh => Shell::Zsh,
        KnownShell::Fish => Shell::Fish,
    };
    let name = tree.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tree, name, &mut script);
    String::from_utf8(script).context("the completions are no text")
}

pub fn man(args: &ManArgs, tree: Command) -> Result<u8> {
    write_pages(&args.out, tree)
        .with_context(|| format!("cannot write man pages to {}", args.out.display()))?;
    Ok(0)
}

/// One page for the command and one for each subcommand: `scx_retune-get.1`.
fn write_pages(dir: &Path, tree: Command) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    clap_mangen::generate_to(tree, dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn subcommands() -> Vec<String> {
        Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
    }

    #[test]
    fn every_subcommand_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        write_pages(&dir.path().join("man1"), Cli::command()).unwrap();
        let page = |name: &str| fs::read_to_string(dir.path().join("man1").join(name)).unwrap();
        assert!(page("scx_retune.1").contains("NAME"));
        for name in subcommands() {
            assert!(page(&format!("scx_retune-{name}.1")).contains("SYNOPSIS"), "{name}");
        }
    }

    #[test]
    fn options_of_tests_alone_are_not_in_the_manual() {
        let dir = tempfile::tempdir().unwrap();
        write_pages(dir.path(), Cli::command()).unwrap();
        let page = fs::read_to_string(dir.path().join("scx_retune-run.1")).unwrap();
        assert!(page.contains(r"\-\-dry\-run") && !page.contains(r"\-\-fault"), "{page}");
    }

    #[test]
    fn every_shell_completes_every_subcommand() {
        for shell in KnownShell::value_variants() {
            let script = completions_of(*shell, Cli::command()).unwrap();
            for name in subcommands() {
                assert!(script.contains(&name), "{shell:?}: {name}");
            }
        }
    }
}
