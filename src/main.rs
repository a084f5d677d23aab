use std::process::ExitCode;

use clap::Parser;
use scx_retune::cli::Cli;
use scx_retune::error::exit_code_of;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("scx_retune: {failure:#}");
            ExitCode::from(exit_code_of(&failure))
        }
    }
}
