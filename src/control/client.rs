//! The client's side: a connection, its requests and answers, and leases.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Request, Response, SetReport, failure_of};
use crate::error::Error;

/// How long an answer may take: a scheduler that is attached anew needs seconds, and 50 were
/// measured on an emulated machine under load.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Asks the running scheduler and returns its answer.
///
/// Errors: no scheduler listens there (exit code 3), or the answer is a refusal, with the
/// exit code of its kind.
pub fn ask(socket: &Path, request: &Request) -> Result<Response> {
    Connection::open(socket)?.ask(request)
}

/// A connection on which any number of requests can be made.
struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    fn open(socket: &Path) -> Result<Connection, Error> {
        let stream = UnixStream::connect(socket).map_err(|why| {
            let advice = match why.kind() {
                ErrorKind::PermissionDenied => "the socket is root's: use sudo",
                _ => "start `scx_retune run`, or name its socket with --socket",
            };
            let socket = socket.display();
            Error::environment(format!(
                "cannot reach a running scx_retune at {socket}: {why}; {advice}"
            ))
        })?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    fn ask(&mut self, request: &Request) -> Result<Response> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.stream.get_ref().set_read_timeout(Some(ANSWER_TIMEOUT))?;
        self.stream.get_mut().write_all(line.as_bytes()).context("cannot send the request")?;
        match self.receive()? {
            Response::Error { code, message } => Err(failure_of(code, message).into()),
            response => Ok(response),
        }
    }

    fn receive(&mut self) -> Result<Response> {
        let mut answer = String::new();
        match self.stream.read_line(&mut answer) {
            Ok(0) => return Err(ended().into()),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Err(too_late().into()),
            read => read.context("cannot read the scheduler's answer")?,
        };
        serde_json::from_str(&answer).context("cannot read the scheduler's answer")
    }
}

fn ended() -> Error {
    Error::environment("no answer from the scheduler: it ended meanwhile; its own output says why")
}

fn too_late() -> Error {
    Error::environment(format!(
        "no answer from the scheduler within {} s: it is being loaded or it hangs, and may still \
         do what was asked; look with `scx_retune history`",
        ANSWER_TIMEOUT.as_secs()
    ))
}

/// Flags that are set for as long as this value lives.
///
/// The server undoes them when the connection ends, so also when this process is killed.
/// A later `set` by somebody else wins over the lease and stays.
pub struct Lease {
    connection: Connection,
    report: SetReport,
}

impl Lease {
    /// Sets the flags.
    ///
    /// Errors: as `ask`.
    pub fn take(socket: &Path, assignments: &str) -> Result<Lease> {
        let mut connection = Connection::open(socket)?;
        let report = set(&mut connection, lease_of(assignments))?;
        Ok(Lease { connection, report })
    }

    /// Sets more flags, or the same ones another way; all of them end with this lease.
    pub fn set(&mut self, assignments: &str) -> Result<&SetReport> {
        self.report = set(&mut self.connection, lease_of(assignments))?;
        Ok(&self.report)
    }

    /// What the last change of this lease did.
    pub fn report(&self) -> &SetReport {
        &self.report
    }

    /// Ends the lease and waits until the flags are restored; dropping it does not wait.
    pub fn end(mut self) -> Result<SetReport> {
        set(&mut self.connection, Request::Release)
    }
}

/// Readable when the server has gone: it sends nothing that was not asked for.
impl AsFd for Lease {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.stream.get_ref().as_fd()
    }
}

fn lease_of(assignments: &str) -> Request {
    Request::Lease { assignments: assignments.to_owned() }
}

fn set(connection: &mut Connection, request: Request) -> Result<SetReport> {
    match connection.ask(&request)? {
        Response::Set(report) => Ok(report),
        _ => bail!("the scheduler answered something else than a set"),
    }
}
