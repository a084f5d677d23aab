//! One error type: what failed, why, what to do; and the exit code that says which kind it was.

use std::fmt;

/// The kind of a failure. Its number is the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The work was done and found something: a difference, a broken law.
    Finding = 1,
    /// The command line, a configuration or a request is wrong; nothing was changed.
    Usage = 2,
    /// The machine cannot do it: no sched_ext, no privilege, another scheduler is loaded.
    Environment = 3,
    /// The kernel ejected the scheduler; its reason was printed.
    Ejected = 4,
}

/// A failure that is printed as `what: why; what to do`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    pub message: String,
}

impl Error {
    pub fn finding(message: impl Into<String>) -> Self {
        Self::new(Kind::Finding, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(Kind::Environment, message)
    }

    pub fn ejected(message: impl Into<String>) -> Self {
        Self::new(Kind::Ejected, message)
    }

    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into() }
    }

    /// 1 finding, 2 usage, 3 environment, 4 ejected.
    pub fn exit_code(&self) -> u8 {
        self.kind as u8
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The exit code of any failure: an `Error` anywhere in the chain says it, all others are 3.
pub fn exit_code_of(failure: &anyhow::Error) -> u8 {
    failure
        .chain()
        .find_map(|cause| cause.downcast_ref::<Error>())
        .map_or(Kind::Environment as u8, Error::exit_code)
}
