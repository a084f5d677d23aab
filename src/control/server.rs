//! The server's side: a socket, its connections, and bounded requests.
//!
//! It has no thread of its own: `poll` waits for the next request or until a time has
//! passed, and the scheduler's loop answers between its looks at the kernel.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, mem};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::{Request, Response};
use crate::error::Error;

/// A request is one line of at most this many bytes.
const MAX_REQUEST: usize = 64 * 1024;
/// More clients at once wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 64;
/// A client that does not take its answer for this long is dropped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// The listening socket and the clients that are connected.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    connections: Vec<Connection>,
}

struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    is_open: bool,
}

impl Server {
    /// Listens at `path`, for root only. A socket that nobody answers any more is replaced.
    ///
    /// Errors (exit code 3): another scx_retune answers there, or the path cannot be used.
    pub fn bind(path: &Path) -> Result<Server, Error> {
        if UnixStream::connect(path).is_ok() {
            return Err(Error::environment(format!(
                "cannot listen at {}: another scx_retune does; stop it, or choose --socket",
                path.display()
            )));
        }
        let listener = bind_private(path).map_err(|why| {
            Error::environment(format!(
                "cannot listen at {}: {why}; choose another path with --socket",
                path.display()
            ))
        })?;
        Ok(Server { listener, path: path.to_owned(), connections: Vec::new() })
    }

    /// Waits for at most `timeout`, then answers every complete request with `answer`.
    pub fn serve(
        &mut self,
        timeout: Duration,
        mut answer: impl FnMut(Request) -> Response,
    ) -> Result<()> {
        if !self.wait(timeout)? {
            return Ok(());
        }
        self.accept();
        for connection in &mut self.connections {
            connection.receive();
            while let Some(line) = connection.next_line() {
                connection.send(&answer_line(&line, &mut answer));
            }
        }
        self.connections.retain(|connection| connection.is_open);
        Ok(())
    }

    /// Whether there is something to read.
    fn wait(&self, timeout: Duration) -> Result<bool> {
        let streams = self.connections.iter().map(|connection| connection.stream.as_fd());
        let mut fds: Vec<PollFd> = streams
            .chain([self.listener.as_fd()])
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(why) => Err(why).context("cannot wait for requests"),
        }
    }

    fn accept(&mut self) {
        while self.connections.len() < MAX_CONNECTIONS {
            let Ok((stream, _)) = self.listener.accept() else { return };
            if let Some(connection) = Connection::new(stream) {
                self.connections.push(connection);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already: nothing to tidy.
        let _ = fs::remove_file(&self.path);
    }
}

/// Binds below a private name first: between bind and chmod nobody else may connect.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let private = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&private);
    let listener = UnixListener::bind(&private)?;
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600))?;
    fs::rename(&private, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Connection {
    /// A connection of root's; others are closed without an answer.
    fn new(stream: UnixStream) -> Option<Connection> {
        let peer = getsockopt(&stream, PeerCredentials).ok()?;
        if peer.uid() != 0 {
            return None;
        }
        stream.set_nonblocking(true).ok()?;
        Some(Connection { stream, received: Vec::new(), is_open: true })
    }

    fn receive(&mut self) {
        let mut buffer = [0; 4096];
        while self.is_open {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.is_open = false,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.is_open = false,
            }
            if self.received.len() > MAX_REQUEST {
                let too_long = format!("a request is one line of at most {MAX_REQUEST} bytes");
                self.send(&Response::from(&Error::usage(too_long)));
                self.is_open = false;
            }
        }
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.received.iter().position(|&byte| byte == b'\n')?;
        let rest = self.received.split_off(end + 1);
        Some(mem::replace(&mut self.received, rest))
    }

    fn send(&mut self, response: &Response) {
        if self.try_send(response).is_err() {
            self.is_open = false;
        }
    }

    /// Blocks while it sends, for at most the write timeout.
    fn try_send(&mut self, response: &Response) -> Result<()> {
        let mut line = serde_json::to_vec(response)?;
        line.push(b'\n');
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        self.stream.write_all(&line)?;
        self.stream.set_nonblocking(true)?;
        Ok(())
    }
}

fn answer_line(line: &[u8], answer: &mut impl FnMut(Request) -> Response) -> Response {
    match serde_json::from_slice(line) {
        Ok(request) => answer(request),
        Err(why) => Response::from(&Error::usage(format!("cannot read the request: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    fn exchange(lines: &[u8]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mut server = Server::bind(&path).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(lines).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        for _ in 0..4 {
            server
                .serve(Duration::from_millis(50), |_| Response::Error {
                    code: 3,
                    message: "heard".into(),
                })
                .unwrap();
        }
        drop(server);
        BufReader::new(client).lines().map(Result::unwrap).collect()
    }

    fn is_root() -> bool {
        fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
    }

    #[test]
    fn each_line_gets_one_answer_and_a_wrong_one_says_why() {
        if !is_root() {
            return eprintln!("the socket is root's: run this test as root");
        }
        let answers = exchange(b"{\"op\":\"get\"}\nnonsense\n{\"op\":\"fly\"}\n");
        assert_eq!(answers.len(), 3);
        assert!(answers[0].contains("heard"));
        assert!(answers[1].contains("cannot read the request"));
        assert!(answers[2].contains("unknown variant `fly`"));
    }

    #[test]
    fn a_request_without_end_is_refused() {
        if !is_root() {
            return eprintln!("the socket is root's: run this test as root");
        }
        let answers = exchange(&vec![b'x'; MAX_REQUEST + 1]);
        assert!(answers[0].contains("at most 65536 bytes"), "{answers:?}");
    }

    #[test]
    fn a_second_server_is_refused_and_a_dead_socket_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = Server::bind(&path).unwrap();
        assert_eq!(Server::bind(&path).err().unwrap().exit_code(), 3);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        mem::forget(first.listener.try_clone().unwrap());
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        Server::bind(&path).unwrap();
    }
}
