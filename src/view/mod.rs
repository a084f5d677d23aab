//! What people see: tables and the commands that only print.

pub mod counters;
pub mod manual;
pub mod plan;
pub mod stats;

use std::io::{self, Write};

use anyhow::{Context, Result};
use comfy_table::{Table, presets};

/// A plain table: no borders, columns aligned, as /proc readers expect.
pub fn plain_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(header);
    table
}

/// Writes to stdout; false where the reader has seen enough (`| head`), which is no failure.
pub fn print(text: &str) -> Result<bool> {
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("cannot write to standard output"),
    }
}
