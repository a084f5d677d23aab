//! The control plane: one JSON value per line over a Unix socket that only root may open.

pub mod client;
pub mod command;
mod connection;
pub mod history;
pub mod hold;
pub mod server;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Kind};
use crate::stats::Snapshot;
use history::Entry;

/// Where `run` listens and clients connect unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/scx_retune.sock";

/// What a client may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Each flag at each level.
    Get,
    /// Change flags: assignments or a preset's name, all or none.
    Set { assignments: String },
    /// As `Set`, undone when the client's connection ends, however it ends.
    Lease { assignments: String },
    /// End this connection's leases now.
    Release,
    /// Every counter.
    Stats,
    /// The last changes of the flags.
    History,
    /// Load the scheduler again.
    Attach,
    /// Unload the scheduler; flags, generation and history stay.
    Detach,
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    Flags {
        table: String,
        plain: String,
        view: Value,
        is_attached: bool,
    },
    Set(SetReport),
    Stats(Box<Snapshot>),
    History(Vec<Entry>),
    Attachment(AttachmentReport),
    Error {
        /// The exit code of the kind of failure.
        code: u8,
        message: String,
    },
}

/// What a `set`, a lease or its end did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetReport {
    pub generation: u64,
    pub words_changed: usize,
    /// CPUs whose word changed, as a list.
    pub cpus: String,
    /// When the last word was written, ns since 1970.
    pub at_unix_ns: u64,
    /// Flags that a preset names and this build leaves out, with the reason.
    pub left_out: Vec<String>,
    /// False while detached: the flags are kept for the next attach.
    pub is_in_effect: bool,
}

/// What an `attach` or a `detach` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentReport {
    pub is_attached: bool,
    /// False where it was so already.
    pub has_changed: bool,
    /// Attaches so far; counters of different epochs cannot be subtracted.
    pub epoch: u64,
    pub generation: u64,
}

impl From<&Error> for Response {
    fn from(error: &Error) -> Self {
        Response::Error { code: error.exit_code(), message: error.message.clone() }
    }
}

/// The failure that a response carries, if it is one.
pub fn failure_of(code: u8, message: String) -> Error {
    let kind = match code {
        1 => Kind::Finding,
        2 => Kind::Usage,
        4 => Kind::Ejected,
        _ => Kind::Environment,
    };
    Error { kind, message }
}
