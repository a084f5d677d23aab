//! The file of `run --config`: the options of `run` as TOML keys. The command line wins.
//!
//! ```toml
//! preset = "2009-affine"
//! set = ["NUMA2.BALANCE_NEWIDLE=off", "MC@node1.WAKE_AFFINE=off"]
//! queue-cpus = "llc"
//! socket = "/run/scx_retune.sock"
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Table;

use super::plan::QueueCpus;
use crate::error::Error;
use crate::flags::Preset;
use crate::flags::nearest::suggestion;

const KEYS: [&str; 4] = ["preset", "set", "queue-cpus", "socket"];

/// What a file says; what it leaves out is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// In the order in which they are applied.
    pub set: Option<Vec<String>>,
    pub queue_cpus: Option<QueueCpus>,
    pub socket: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Raw {
    preset: Option<String>,
    set: Option<OneOrMore>,
    queue_cpus: Option<NumberOrWord>,
    socket: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number or \"llc\"")]
enum NumberOrWord {
    Number(usize),
    Word(String),
}

/// Reads a file.
///
/// Errors (usage) name the file, and the line or the key that is wrong.
pub fn read(path: &Path) -> Result<Config, Error> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|why| {
        Error::usage(format!("cannot read {name}: {why}; --config wants a TOML file"))
    })?;
    parse(&text).map_err(|why| Error::usage(format!("cannot use {name}: {why}")))
}

fn parse(text: &str) -> Result<Config, String> {
    let table: Table = text.parse().map_err(|why| format!("it is not TOML: {why}"))?;
    match table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        Some(key) => Err(unknown(key)),
        None => config_of(table),
    }
}

fn unknown(key: &str) -> String {
    format!("no key '{key}': the keys are {}{}", KEYS.join(", "), suggestion(key, &KEYS))
}

fn config_of(table: Table) -> Result<Config, String> {
    let raw: Raw = table.try_into().map_err(|why| why.to_string().trim().to_owned())?;
    let preset = raw.preset.map(preset_name).transpose()?;
    let set = raw.set.map(OneOrMore::into_vec);
    Ok(Config {
        set: match (preset, set) {
            (None, set) => set,
            (Some(preset), set) => Some([vec![preset], set.unwrap_or_default()].concat()),
        },
        queue_cpus: raw.queue_cpus.map(NumberOrWord::queue_cpus).transpose()?,
        socket: raw.socket,
    })
}

fn preset_name(text: String) -> Result<String, String> {
    let names = Preset::ALL.map(Preset::name);
    match Preset::from_name(&text) {
        Some(_) => Ok(text),
        None => Err(format!(
            "no preset '{text}': the presets are {}{}",
            names.join(", "),
            suggestion(&text, &names)
        )),
    }
}

impl OneOrMore {
    fn into_vec(self) -> Vec<String> {
        match self {
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        }
    }
}

impl NumberOrWord {
    fn queue_cpus(self) -> Result<QueueCpus, String> {
        let text = match self {
            NumberOrWord::Number(number) => number.to_string(),
            NumberOrWord::Word(word) => word,
        };
        text.parse().map_err(|why| format!("queue-cpus: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text).expect_err(text)
    }

    #[test]
    fn every_key_is_read() {
        let text = "preset = '2009-affine'\nset = ['MC.NEWIDLE=off', 'NUMA.NEWIDLE=on']\n\
                    queue-cpus = 'llc'\nsocket = '/run/other.sock'\n";
        let expected = Config {
            set: Some(
                ["2009-affine", "MC.NEWIDLE=off", "NUMA.NEWIDLE=on"].map(str::to_owned).into(),
            ),
            queue_cpus: Some(QueueCpus::Llc),
            socket: Some("/run/other.sock".into()),
        };
        assert_eq!(parse(text), Ok(expected));
    }

    #[test]
    fn one_assignment_needs_no_list_and_a_number_no_quotes() {
        let config = parse("set = 'MC.NEWIDLE=off'\nqueue-cpus = 2\n").unwrap();
        assert_eq!(config.set, Some(vec!["MC.NEWIDLE=off".to_owned()]));
        assert_eq!(config.queue_cpus, Some(QueueCpus::UpTo(2)));
        assert_eq!(parse(""), Ok(Config::default()));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_right_one() {
        let keys = "the keys are preset, set, queue-cpus, socket";
        for (key, near) in [
            ("sockte", "; did you mean socket?"),
            ("queue_cpus", "; did you mean queue-cpus?"),
            ("presets", "; did you mean preset?"),
            ("timeout", ""),
        ] {
            assert_eq!(refused(&format!("{key} = 1")), format!("no key '{key}': {keys}{near}"));
        }
    }

    #[test]
    fn a_wrong_value_names_its_key() {
        for (text, part) in [
            ("set = 3", "list of strings"),
            ("queue-cpus = 0", "queue-cpus: '0' is neither"),
            ("queue-cpus = []", "a number or \"llc\""),
            ("preset = '2009'", "did you mean 2009-before or 2009-affine or 2009-newidle?"),
            ("socket = ", "it is not TOML"),
        ] {
            assert!(refused(text).contains(part), "{text}: {}", refused(text));
        }
    }
}
