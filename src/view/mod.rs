//! What people see: tables and the commands that only print.

pub mod plan;
pub mod stats;

use comfy_table::{Table, presets};

/// A plain table: no borders, columns aligned, as /proc readers expect.
pub fn plain_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(header);
    table
}
