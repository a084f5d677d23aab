//! The documents that are generated from the code, and those that must not drift from it.

mod flags;
mod stats;

use std::fs;
use std::path::{Path, PathBuf};

use scx_retune::flags::{Flag, Preset};
use scx_retune::stats::{CPU_COUNTERS, LEVEL_COUNTERS};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Compares the file with what the code generates, or writes it where UPDATE_DOCS is set.
fn check(name: &str, generated: &str) {
    let file = path(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return fs::write(&file, generated).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let differs = written.lines().zip(generated.lines()).find(|(old, new)| old != new);
    assert!(
        written == generated,
        "{name} is not what the code says; first difference: {differs:?}\n\
         regenerate it with: UPDATE_DOCS=1 cargo test --test docs"
    );
}

#[test]
fn flags_md_is_generated_from_the_code() {
    check("docs/flags.md", &flags::document());
}

#[test]
fn stats_md_is_generated_from_the_code() {
    check("docs/stats.md", &stats::document());
}

/// Rows of a Markdown table.
fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let header: Vec<String> = header.iter().map(ToString::to_string).collect();
    let rule = vec!["---".to_owned(); header.len()];
    let rows: String = rows.into_iter().map(|row| line(&row)).collect();
    line(&header) + &line(&rule) + &rows
}

fn code(word: &str) -> String {
    format!("`{word}`")
}

/// Words in backquotes that are made like a counter's or a flag's name.
fn names_in(text: &str) -> Vec<&str> {
    let is_name = |word: &&str| {
        word.contains('_') && word.chars().all(|c| c.is_ascii_alphabetic() || c == '_')
    };
    text.split('`').skip(1).step_by(2).filter(is_name).collect()
}

#[test]
fn the_guide_names_counters_and_flags_that_exist() {
    /// What else is spelled so.
    const OTHERS: &[&str] = &["waiting_now", "CONFIG_SCHED_CLASS_EXT"];
    let guide = fs::read_to_string(path("GUIDE.md")).unwrap();
    let counters = CPU_COUNTERS.iter().chain(LEVEL_COUNTERS).map(|counter| counter.name);
    let known: Vec<&str> = counters.chain(OTHERS.iter().copied()).collect();
    let names = names_in(&guide);
    assert!(names.len() > 20, "the guide names few counters: {names:?}");
    for name in names {
        let is_known = known.contains(&name) || Flag::from_name(name).is_some();
        assert!(is_known || name.starts_with("SCX_EV_"), "the guide names `{name}`");
    }
}

#[test]
fn the_guide_names_every_preset_and_flag() {
    let guide = fs::read_to_string(path("GUIDE.md")).unwrap();
    Preset::ALL.iter().for_each(|p| assert!(guide.contains(p.name()), "{}", p.name()));
    Flag::ALL.iter().for_each(|flag| assert!(guide.contains(flag.name()), "{flag}"));
}
