//! The server's side: a socket, its connections, and bounded requests.
//!
//! It has no thread of its own: `serve` waits for the next request or until a time has
//! passed, and the scheduler's loop answers between its looks at the kernel. No client can
//! hold that loop: reading and writing never block, a request and an answer are bounded,
//! and who does not take an answer is dropped.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::connection::Connection;
use super::{Request, Response};
use crate::error::Error;

/// More clients at once wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 64;

/// A connected client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Never used twice.
    pub id: u64,
    pub pid: i32,
}

/// Who answers.
pub trait Service {
    /// None promises a `Server::reply` before the next `serve`.
    fn answer(&mut self, client: Client, request: Request) -> Option<Response>;

    /// The client has gone, and with it whatever it had on lease.
    fn left(&mut self, client: Client);
}

/// A service that knows no clients and answers at once.
impl<F: FnMut(Request) -> Response> Service for F {
    fn answer(&mut self, _: Client, request: Request) -> Option<Response> {
        Some(self(request))
    }

    fn left(&mut self, _: Client) {}
}

/// The listening socket and the clients that are connected.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    connections: Vec<Connection>,
    nr_clients: u64,
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
        Ok(Server { listener, path: path.to_owned(), connections: Vec::new(), nr_clients: 0 })
    }

    /// Waits for at most `timeout`, then answers every complete request.
    ///
    /// Returns early after a request whose answer was only promised: what follows it is
    /// answered in the state that it leads to.
    pub fn serve(&mut self, timeout: Duration, mut service: impl Service) -> Result<()> {
        self.wait(timeout)?;
        self.accept();
        self.connections.iter_mut().for_each(Connection::receive);
        self.answer(&mut service);
        self.connections.retain(|connection| {
            let stays = !connection.is_done();
            if !stays {
                service.left(connection.client);
            }
            stays
        });
        Ok(())
    }

    fn answer(&mut self, service: &mut impl Service) {
        for connection in &mut self.connections {
            while let Some(line) = connection.next_line() {
                match answer_line(&line, connection.client, service) {
                    Some(response) => connection.send(&response),
                    None => return connection.owe(),
                }
            }
        }
    }

    /// Sends an answer that was promised; does nothing where the client has gone.
    pub fn reply(&mut self, client: Client, response: &Response) {
        let mut connections = self.connections.iter_mut();
        if let Some(connection) = connections.find(|connection| connection.client == client) {
            connection.send(response);
        }
    }

    /// Returns when there is something to do, at the latest after `timeout`.
    fn wait(&self, timeout: Duration) -> Result<()> {
        if self.connections.iter().any(Connection::has_line) {
            return Ok(());
        }
        let mut fds: Vec<PollFd> = self.connections.iter().map(Connection::poll_fd).collect();
        // Polled while there is no room, the listener would make this a busy loop.
        if self.connections.len() < MAX_CONNECTIONS {
            fds.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(why) => Err(why).context("cannot wait for requests"),
        }
    }

    fn accept(&mut self) {
        while self.connections.len() < MAX_CONNECTIONS {
            let Ok((stream, _)) = self.listener.accept() else { return };
            self.nr_clients += 1;
            self.connections.extend(Connection::new(stream, self.nr_clients));
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

fn answer_line(line: &[u8], client: Client, service: &mut impl Service) -> Option<Response> {
    match serde_json::from_slice(line) {
        Ok(request) => service.answer(client, request),
        Err(why) => Some(Response::from(&Error::usage(format!("cannot read the request: {why}")))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::MAX_REQUEST;
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::Shutdown;

    const SHORT: Duration = Duration::from_millis(20);

    struct Fixture {
        dir: tempfile::TempDir,
        server: Server,
    }

    impl Fixture {
        fn new() -> Fixture {
            let dir = tempfile::tempdir().unwrap();
            let server = Server::bind(&dir.path().join("s")).unwrap();
            Fixture { dir, server }
        }

        fn client(&self) -> UnixStream {
            UnixStream::connect(self.dir.path().join("s")).unwrap()
        }

        fn serve(&mut self, rounds: usize) {
            for _ in 0..rounds {
                self.server.serve(SHORT, |_| heard()).unwrap();
            }
        }
    }

    fn heard() -> Response {
        Response::Error { code: 3, message: "heard".into() }
    }

    fn exchange(lines: &[u8]) -> Vec<String> {
        let mut fixture = Fixture::new();
        let mut client = fixture.client();
        client.write_all(lines).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        fixture.serve(4);
        drop(fixture.server);
        BufReader::new(client).lines().map(Result::unwrap).collect()
    }

    fn read_line(client: &UnixStream) -> String {
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn each_line_gets_one_answer_and_a_wrong_one_says_why() {
        let answers = exchange(b"{\"op\":\"get\"}\nnonsense\n{\"op\":\"fly\"}\n\xff\xfe\n");
        assert_eq!(answers.len(), 4);
        assert!(answers[0].contains("heard"));
        assert!(answers[1].contains("cannot read the request"));
        assert!(answers[2].contains("unknown variant `fly`"));
        assert!(answers[3].contains("cannot read the request"));
    }

    #[test]
    fn a_request_without_end_is_refused() {
        let answers = exchange(&vec![b'x'; MAX_REQUEST + 1]);
        assert!(answers[0].contains("at most 65536 bytes"), "{answers:?}");
    }

    #[test]
    fn half_a_line_holds_nobody_and_its_other_half_is_answered() {
        let mut fixture = Fixture::new();
        let (mut slow, mut other) = (fixture.client(), fixture.client());
        slow.write_all(b"{\"op\":").unwrap();
        fixture.serve(2);
        other.write_all(b"{\"op\":\"get\"}\n").unwrap();
        fixture.serve(1);
        assert!(read_line(&other).contains("heard"));
        slow.write_all(b"\"get\"}\n").unwrap();
        fixture.serve(1);
        assert!(read_line(&slow).contains("heard"));
    }

    #[test]
    fn more_requests_than_fit_at_once_are_all_answered() {
        let mut fixture = Fixture::new();
        let mut client = fixture.client();
        let asker = std::thread::spawn(move || {
            client.write_all(&b"{\"op\":\"get\"}\n".repeat(10_000)).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            BufReader::new(client).lines().count()
        });
        while !asker.is_finished() {
            fixture.serve(1);
        }
        assert_eq!(asker.join().unwrap(), 10_000);
    }

    #[test]
    fn a_client_that_takes_no_answer_holds_nobody() {
        let mut fixture = Fixture::new();
        let (mut deaf, mut other) = (fixture.client(), fixture.client());
        deaf.write_all(b"{\"op\":\"get\"}\n").unwrap();
        let long = Response::Error { code: 3, message: "x".repeat(4 << 20) };
        fixture.server.serve(SHORT, |_| long.clone()).unwrap();
        other.write_all(b"{\"op\":\"get\"}\n").unwrap();
        fixture.serve(1);
        assert!(read_line(&other).contains("heard"));
        let reader = std::thread::spawn(move || read_line(&deaf).len());
        while !reader.is_finished() {
            fixture.serve(1);
        }
        assert!(reader.join().unwrap() > 4 << 20, "late, but whole");
    }

    /// Promises its first answer, and notes who leaves.
    struct Later<'a> {
        promised: &'a mut Option<Client>,
        left: &'a mut Vec<Client>,
    }

    impl Service for Later<'_> {
        fn answer(&mut self, client: Client, _: Request) -> Option<Response> {
            match self.promised {
                Some(_) => Some(heard()),
                None => {
                    *self.promised = Some(client);
                    None
                }
            }
        }

        fn left(&mut self, client: Client) {
            self.left.push(client);
        }
    }

    #[test]
    fn a_promised_answer_comes_before_the_next() {
        let mut fixture = Fixture::new();
        let (mut promised, mut left) = (None, Vec::new());
        let mut client = fixture.client();
        client.write_all(b"{\"op\":\"attach\"}\n{\"op\":\"get\"}\n").unwrap();
        let service = Later { promised: &mut promised, left: &mut left };
        fixture.server.serve(SHORT, service).unwrap();
        client.set_nonblocking(true).unwrap();
        assert!(client.read(&mut [0; 1]).is_err(), "nothing is answered yet");
        client.set_nonblocking(false).unwrap();
        let late = Response::Error { code: 3, message: "late".into() };
        fixture.server.reply(promised.unwrap(), &late);
        fixture.serve(1);
        client.shutdown(Shutdown::Write).unwrap();
        fixture.serve(1);
        let answers: Vec<String> = BufReader::new(client).lines().map(Result::unwrap).collect();
        assert!(answers[0].contains("late") && answers[1].contains("heard"), "{answers:?}");
    }

    #[test]
    fn who_leaves_is_told_once_also_in_the_middle_of_a_line() {
        let mut fixture = Fixture::new();
        let (mut promised, mut left) = (Some(Client { id: 0, pid: 0 }), Vec::new());
        let mut client = fixture.client();
        client.write_all(b"{\"op\":\"get\"}\n{\"op\":").unwrap();
        drop(client);
        for _ in 0..3 {
            let service = Later { promised: &mut promised, left: &mut left };
            fixture.server.serve(SHORT, service).unwrap();
        }
        assert_eq!(left, [Client { id: 1, pid: std::process::id() as i32 }]);
    }

    #[test]
    fn a_second_server_is_refused_and_a_dead_socket_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = Server::bind(&path).unwrap();
        assert_eq!(Server::bind(&path).err().unwrap().exit_code(), 3);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        Server::bind(&path).unwrap();
    }
}
