//! The life of a `run`: attached, detached, attached anew, until it is stopped or ejected.
//!
//! One thread does everything in turn. While a scheduler is loaded, which takes a second or
//! more, requests wait in their sockets; they are answered in the state that follows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

use super::attach::Storage;
use super::attachment::{Attachment, Exit, Loader, Refusal};
use super::state::{Desk, State};
use crate::control::Response;
use crate::control::server::{Client, Server, Service};
use crate::error::{Error, exit_code_of};

/// How often the loop looks whether the kernel has ended the scheduler.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Attempts at one attach while CPUs come and go (chosen: each takes a second, a storm of
/// hotplugs that outlasts them is better waited out by the operator).
const MAX_ATTEMPTS: u32 = 10;
/// Between attempts, so that whoever switches CPUs gets on (chosen).
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);

/// Where requests come from and answers go to.
pub trait Clients {
    fn serve(&mut self, timeout: Duration, service: impl Service) -> Result<()>;
    fn reply(&mut self, client: Client, response: &Response);
}

impl Clients for Server {
    fn serve(&mut self, timeout: Duration, service: impl Service) -> Result<()> {
        Server::serve(self, timeout, service)
    }

    fn reply(&mut self, client: Client, response: &Response) {
        Server::reply(self, client, response);
    }
}

/// Everything that a `run` has.
pub struct Session<'a, L, C> {
    pub loader: L,
    pub clients: C,
    pub state: State,
    pub stop: &'a AtomicBool,
}

/// What comes next.
#[derive(Clone, Copy)]
enum Phase {
    Attach(Attempt),
    Detached,
}

#[derive(Clone, Copy)]
struct Attempt {
    /// Counted from 1.
    number: u32,
    /// The client that wants it; none for the start and for a restart.
    asker: Option<Client>,
}

impl Phase {
    fn attach(asker: Option<Client>) -> Phase {
        Phase::Attach(Attempt { number: 1, asker })
    }
}

impl<L: Loader, C: Clients> Session<'_, L, C> {
    /// Attaches and serves until it is stopped.
    ///
    /// Errors: the first attach or a restart failed (exit code 3), or the kernel ejected the
    /// scheduler (4). An attach that a client asked for and that fails is the client's error.
    pub fn run(&mut self) -> Result<()> {
        let mut phase = Phase::attach(None);
        while !self.is_stopped() {
            phase = match phase {
                Phase::Attach(attempt) => self.attach(attempt)?,
                Phase::Detached => self.serve_detached()?,
            };
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn attach(&mut self, attempt: Attempt) -> Result<Phase> {
        let mut storage = Storage::uninit();
        match self.loader.load(&mut storage, self.state.matrix()) {
            Ok(loaded) => {
                self.state.begin_epoch(loaded.machine);
                if let Some(asker) = attempt.asker {
                    self.clients.reply(asker, &self.state.report(true, true));
                }
                self.serve_attached(loaded.attachment)
            }
            Err(Refusal::Raced(why)) if attempt.number < MAX_ATTEMPTS => {
                eprintln!("scx_retune: the machine's CPUs change, attaching anew: {why:#}");
                std::thread::sleep(ATTEMPT_PAUSE);
                Ok(Phase::Attach(Attempt { number: attempt.number + 1, ..attempt }))
            }
            Err(Refusal::Raced(why)) => self.give_up(attempt, why.context(no_peace())),
            Err(Refusal::Failed(why)) => self.give_up(attempt, why),
        }
    }

    /// Whoever asked gets the reason, and all else stays; nobody to tell it to ends the run.
    fn give_up(&mut self, attempt: Attempt, why: anyhow::Error) -> Result<Phase> {
        let Some(asker) = attempt.asker else { return Err(why) };
        let response = Response::Error { code: exit_code_of(&why), message: format!("{why:#}") };
        self.clients.reply(asker, &response);
        Ok(Phase::Detached)
    }

    fn serve_attached(&mut self, mut attachment: Box<dyn Attachment + '_>) -> Result<Phase> {
        let mut asker = None;
        while !self.is_stopped() && asker.is_none() && !attachment.has_exited() {
            let desk = Desk {
                state: &mut self.state,
                attachment: Some(&mut *attachment),
                asker: &mut asker,
            };
            self.clients.serve(LOOK_INTERVAL, desk)?;
        }
        let exit = attachment.detach();
        self.after(exit, asker)
    }

    fn after(&mut self, exit: Exit, asker: Option<Client>) -> Result<Phase> {
        match (exit, asker) {
            (Exit::Ejected(why), _) => Err(ejected(&why)),
            (_, Some(asker)) => {
                eprintln!("scx_retune: detached");
                self.clients.reply(asker, &self.state.report(false, true));
                Ok(Phase::Detached)
            }
            // The loop ends before it looks at this phase.
            _ if self.is_stopped() => Ok(Phase::Detached),
            (Exit::CpusChanged, None) => {
                eprintln!("scx_retune: the machine's CPUs changed, attaching anew");
                Ok(Phase::attach(None))
            }
            (Exit::Unloaded, None) => Err(unloaded()),
        }
    }

    fn serve_detached(&mut self) -> Result<Phase> {
        let mut asker = None;
        while !self.is_stopped() && asker.is_none() {
            let desk = Desk { state: &mut self.state, attachment: None, asker: &mut asker };
            self.clients.serve(LOOK_INTERVAL, desk)?;
        }
        Ok(Phase::attach(asker))
    }
}

fn no_peace() -> Error {
    Error::environment(format!(
        "cannot attach: CPUs came or went during each of {MAX_ATTEMPTS} attempts; attach again \
         when that is over"
    ))
}

fn ejected(why: &str) -> anyhow::Error {
    Error::ejected(format!("the kernel ejected the scheduler: {why}")).into()
}

fn unloaded() -> anyhow::Error {
    Error::ejected("the scheduler was unloaded from outside (SysRq-S or the kernel)").into()
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
