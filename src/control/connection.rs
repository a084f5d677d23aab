//! One client's connection: what it sent, and what it has not taken yet.

use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Uid;

use super::Response;
use super::server::Client;
use crate::error::Error;

/// A request is one line of at most this many bytes.
pub(super) const MAX_REQUEST: usize = 64 * 1024;
/// A client that takes nothing of its answer for this long is dropped.
const STALL_LIMIT: Duration = Duration::from_secs(2);

pub(super) struct Connection {
    pub client: Client,
    stream: UnixStream,
    received: Vec<u8>,
    /// Answers that the client has not taken yet.
    unsent: Vec<u8>,
    /// When the client last took something.
    taken_at: Instant,
    /// An answer was promised.
    is_owed: bool,
    /// The client sends no more; it may still take answers.
    has_ended: bool,
    is_broken: bool,
}

impl Connection {
    /// A connection of this process's own user, root; others are closed without an answer.
    pub fn new(stream: UnixStream, id: u64) -> Option<Connection> {
        let peer = getsockopt(&stream, PeerCredentials).ok()?;
        if peer.uid() != Uid::effective().as_raw() {
            return None;
        }
        stream.set_nonblocking(true).ok()?;
        Some(Connection {
            client: Client { id, pid: peer.pid() },
            stream,
            received: Vec::new(),
            unsent: Vec::new(),
            taken_at: Instant::now(),
            is_owed: false,
            has_ended: false,
            is_broken: false,
        })
    }

    /// What to wait for: the end of an answer before more requests.
    pub fn poll_fd(&self) -> PollFd<'_> {
        let events = match (self.unsent.is_empty(), self.has_ended) {
            (false, _) => PollFlags::POLLOUT,
            (true, false) => PollFlags::POLLIN,
            (true, true) => PollFlags::empty(),
        };
        PollFd::new(self.stream.as_fd(), events)
    }

    /// Takes what has come, up to a request's limit.
    pub fn receive(&mut self) {
        self.flush();
        let mut buffer = [0; 4096];
        while !self.has_ended && !self.is_broken && self.received.len() <= MAX_REQUEST {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.has_ended = true,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(why) if is_passing(&why) => break,
                Err(_) => self.is_broken = true,
            }
        }
        if self.received.len() > MAX_REQUEST && self.line_end().is_none() {
            self.refuse_long_request();
        }
    }

    fn refuse_long_request(&mut self) {
        let too_long = format!("a request is one line of at most {MAX_REQUEST} bytes");
        self.send(&Response::from(&Error::usage(too_long)));
        self.received.clear();
        self.has_ended = true;
    }

    fn line_end(&self) -> Option<usize> {
        self.received.iter().position(|&byte| byte == b'\n')
    }

    /// Whether a request can be answered now: not before the answer to the one before it.
    pub fn has_line(&self) -> bool {
        !self.is_broken && !self.is_owed && self.unsent.is_empty() && self.line_end().is_some()
    }

    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.line_end().filter(|_| self.has_line())?;
        let rest = self.received.split_off(end + 1);
        Some(mem::replace(&mut self.received, rest))
    }

    /// Notes that an answer was promised.
    pub fn owe(&mut self) {
        self.is_owed = true;
    }

    /// Sends what the client takes at once; the rest follows when it takes more.
    pub fn send(&mut self, response: &Response) {
        self.is_owed = false;
        match serde_json::to_vec(response) {
            Ok(line) => self.unsent.extend(line.into_iter().chain([b'\n'])),
            Err(_) => self.is_broken = true,
        }
        self.taken_at = Instant::now();
        self.flush();
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() && !self.is_broken {
            match self.stream.write(&self.unsent) {
                Ok(count) => {
                    self.unsent.drain(..count);
                    self.taken_at = Instant::now();
                }
                Err(why) if is_passing(&why) => break,
                Err(_) => self.is_broken = true,
            }
        }
        self.is_broken |= !self.unsent.is_empty() && self.taken_at.elapsed() > STALL_LIMIT;
    }

    /// Whether nothing more will come or go.
    pub fn is_done(&self) -> bool {
        let is_silent = self.unsent.is_empty() && !self.is_owed && !self.has_line();
        self.is_broken || self.has_ended && is_silent
    }
}

fn is_passing(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
