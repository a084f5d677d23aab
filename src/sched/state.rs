//! What outlives every attachment, and the answers that come from it.

use nix::time::{ClockId, clock_gettime};

use super::attachment::Attachment;
use crate::control::history::{Cause, Entry, History};
use crate::control::server::{Client, Service};
use crate::control::{AttachmentReport, Request, Response, SetReport};
use crate::error::Error;
use crate::flags::{self, Change, Flag, LeasedMatrix, Matrix, Preset, Word};
use crate::stats::Snapshot;
use crate::topology::Machine;

/// The flags, how they became so, and the machine of the last attachment.
///
/// Words are kept by CPU number and level for every possible CPU, so flags survive CPUs that
/// go and come back. While all CPUs of a node are away the machine may have fewer distances,
/// and a NUMA level then names another one.
pub struct State {
    machine: Machine,
    flags: LeasedMatrix,
    history: History,
    /// Attaches so far.
    epoch: u64,
}

impl State {
    /// `flags` are those that `assignments` made of mainline's.
    pub fn new(machine: Machine, flags: Matrix, assignments: &str) -> State {
        let mainline = Matrix::mainline(&machine);
        let words = flags.words().iter().zip(mainline.words());
        let start = Entry {
            generation: flags.generation(),
            at_unix_ns: clock_ns(ClockId::CLOCK_REALTIME),
            words_changed: words.filter(|(now, before)| now != before).count(),
            cause: Cause::Start,
            pid: None,
            assignments: assignments.to_owned(),
        };
        let mut history = History::default();
        history.push(start);
        State { machine, flags: LeasedMatrix::new(flags), history, epoch: 0 }
    }

    /// The flags to attach with.
    pub fn matrix(&self) -> &Matrix {
        self.flags.matrix()
    }

    /// Notes an attachment to the machine as it is now.
    pub fn begin_epoch(&mut self, machine: Machine) {
        self.machine = machine;
        self.epoch += 1;
    }

    pub fn report(&self, is_attached: bool, has_changed: bool) -> Response {
        Response::Attachment(AttachmentReport {
            is_attached,
            has_changed,
            epoch: self.epoch,
            generation: self.matrix().generation(),
        })
    }

    fn view(&self, is_attached: bool) -> Response {
        let view = self.matrix().view(&self.machine);
        Response::Flags {
            table: view.to_string(),
            plain: view.plain(),
            view: serde_json::to_value(&view).unwrap_or_default(),
            is_attached,
        }
    }
}

/// Answers requests for as long as the state is the same: attached or not.
pub struct Desk<'a, 's> {
    pub state: &'a mut State,
    pub attachment: Option<&'a mut (dyn Attachment + 's)>,
    /// Who wants it the other way round.
    pub asker: &'a mut Option<Client>,
}

impl Service for Desk<'_, '_> {
    fn answer(&mut self, client: Client, request: Request) -> Option<Response> {
        let is_attached = self.attachment.is_some();
        Some(match request {
            Request::Get => self.state.view(is_attached),
            Request::History => Response::History(self.state.history.to_vec()),
            Request::Stats => or_refusal(self.stats()),
            Request::Set { assignments } => or_refusal(self.set(client, Cause::Set, &assignments)),
            Request::Lease { assignments } => {
                or_refusal(self.set(client, Cause::Lease, &assignments))
            }
            Request::Release => Response::Set(self.end_leases(client)),
            Request::Attach if is_attached => self.state.report(true, false),
            Request::Detach if !is_attached => self.state.report(false, false),
            Request::Attach | Request::Detach => {
                *self.asker = Some(client);
                return None;
            }
        })
    }

    fn left(&mut self, client: Client) {
        self.end_leases(client);
    }
}

impl Desk<'_, '_> {
    fn set(&mut self, client: Client, cause: Cause, text: &str) -> Result<Response, Error> {
        let assignments = flags::parse(text, &self.state.machine)?;
        let change = match cause {
            Cause::Lease => self.state.flags.lease(client.id, &assignments),
            _ => self.state.flags.set(&assignments),
        };
        let report = self.publish(&change, client, cause, text);
        Ok(Response::Set(SetReport { left_out: left_out(text), ..report }))
    }

    fn end_leases(&mut self, client: Client) -> SetReport {
        let change = self.state.flags.release(client.id);
        self.publish(&change, client, Cause::LeaseEnded, "")
    }

    /// Makes a change of the matrix count and notes it; a request that changed nothing is none.
    fn publish(&mut self, change: &Change, client: Client, cause: Cause, text: &str) -> SetReport {
        let has_changed = change.words_changed > 0;
        if let Some(attachment) = self.attachment.as_mut().filter(|_| has_changed) {
            attachment.publish(&words_of(self.state.flags.matrix()), change.generation);
        }
        let report = report_of(change, self.attachment.is_some());
        if has_changed {
            self.state.history.push(entry(&report, client, cause, text));
        }
        report
    }

    fn stats(&mut self) -> Result<Response, Error> {
        let attachment = self.attachment.as_mut().ok_or_else(|| {
            Error::environment(
                "cannot read counters: the scheduler is detached and counts nothing; run \
                 `scx_retune attach` first",
            )
        })?;
        Ok(Response::Stats(Box::new(Snapshot {
            epoch: self.state.epoch,
            generation: self.state.matrix().generation(),
            at_ns: clock_ns(ClockId::CLOCK_MONOTONIC),
            waiting_now: attachment.waiting_now(),
            rows: Snapshot::rows_from_words(&attachment.counters()),
        })))
    }
}

fn or_refusal(answer: Result<Response, Error>) -> Response {
    answer.unwrap_or_else(|refusal| Response::from(&refusal))
}

/// The change as of now.
fn report_of(change: &Change, is_in_effect: bool) -> SetReport {
    SetReport {
        generation: change.generation,
        words_changed: change.words_changed,
        cpus: change.cpus.to_string(),
        at_unix_ns: clock_ns(ClockId::CLOCK_REALTIME),
        left_out: Vec::new(),
        is_in_effect,
    }
}

fn entry(report: &SetReport, client: Client, cause: Cause, text: &str) -> Entry {
    Entry {
        generation: report.generation,
        at_unix_ns: report.at_unix_ns,
        words_changed: report.words_changed,
        cause,
        pid: Some(client.pid),
        assignments: text.to_owned(),
    }
}

pub fn words_of(matrix: &Matrix) -> Vec<u64> {
    matrix.words().iter().map(|&Word(bits)| bits).collect()
}

/// The flags of a preset that this build does not deliver, with their reasons.
pub fn left_out(text: &str) -> Vec<String> {
    let preset = Preset::from_name(text);
    let flags: Vec<(Flag, &str)> = preset.map(Preset::left_out).unwrap_or_default();
    flags.iter().map(|(flag, reason)| format!("{flag}: {reason}")).collect()
}

fn clock_ns(clock: ClockId) -> u64 {
    clock_gettime(clock)
        .map(|time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        .unwrap_or_default()
}
