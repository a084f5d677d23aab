//! The session with a kernel and clients that are made up: no privilege, no waiting.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

use anyhow::anyhow;

use super::super::attachment::Loaded;
use super::super::state::words_of;
use super::*;
use crate::control::client::{self, Lease};
use crate::control::history::{CAPACITY, Cause, Entry};
use crate::control::{AttachmentReport, Request, SetReport};
use crate::flags::{Matrix, fixture};

/// What the kernel would have.
#[derive(Default)]
struct Kernel {
    is_attached: bool,
    words: Vec<u64>,
    generation: u64,
    nr_loads: usize,
    exit: Option<Exit>,
    /// What the next loads run into.
    refusals: VecDeque<Refusal>,
}

type Shared = Rc<RefCell<Kernel>>;

struct FakeLoader(Shared);
struct FakeAttachment(Shared);

impl Loader for FakeLoader {
    fn load<'s>(&mut self, _: &'s mut Storage, flags: &Matrix) -> Result<Loaded<'s>, Refusal> {
        let mut kernel = self.0.borrow_mut();
        kernel.nr_loads += 1;
        if let Some(refusal) = kernel.refusals.pop_front() {
            return Err(refusal);
        }
        kernel.is_attached = true;
        kernel.exit = None;
        kernel.words = words_of(flags);
        kernel.generation = flags.generation();
        let attachment = Box::new(FakeAttachment(self.0.clone()));
        Ok(Loaded { machine: fixture::line(), attachment })
    }
}

impl Attachment for FakeAttachment {
    fn publish(&mut self, words: &[u64], generation: u64) {
        let mut kernel = self.0.borrow_mut();
        kernel.words = words.to_vec();
        kernel.generation = generation;
    }

    fn counters(&mut self) -> Vec<u64> {
        Vec::new()
    }

    fn waiting_now(&mut self) -> u64 {
        0
    }

    fn has_exited(&self) -> bool {
        self.0.borrow().exit.is_some()
    }

    fn detach(self: Box<Self>) -> Exit {
        let mut kernel = self.0.borrow_mut();
        kernel.is_attached = false;
        kernel.exit.take().unwrap_or(Exit::Unloaded)
    }
}

/// What happens, in its order.
enum Step {
    Ask(u64, Request),
    Leave(u64),
    Kernel(Box<dyn FnOnce(&mut Kernel)>),
}

/// One step at each `serve`; after the last one the run is stopped.
struct Script<'a> {
    steps: VecDeque<Step>,
    kernel: Shared,
    stop: &'a AtomicBool,
    answers: Vec<Response>,
}

fn client(id: u64) -> Client {
    Client { id, pid: 1000 + id as i32 }
}

impl Clients for Script<'_> {
    fn serve(&mut self, _: Duration, mut service: impl Service) -> Result<()> {
        match self.steps.pop_front() {
            Some(Step::Ask(id, request)) => {
                self.answers.extend(service.answer(client(id), request));
            }
            Some(Step::Leave(id)) => service.left(client(id)),
            Some(Step::Kernel(change)) => change(&mut self.kernel.borrow_mut()),
            None => self.stop.store(true, Ordering::Relaxed),
        }
        Ok(())
    }

    fn reply(&mut self, _: Client, response: &Response) {
        self.answers.push(response.clone());
    }
}

/// How a run went.
struct Run {
    outcome: Result<()>,
    answers: Vec<Response>,
    kernel: Shared,
}

fn run(steps: impl IntoIterator<Item = Step>) -> Run {
    let kernel = Shared::default();
    let stop = AtomicBool::new(false);
    let matrix = Matrix::mainline(&fixture::line());
    let mut session = Session {
        loader: FakeLoader(kernel.clone()),
        clients: Script {
            steps: steps.into_iter().collect(),
            kernel: kernel.clone(),
            stop: &stop,
            answers: Vec::new(),
        },
        state: State::new(fixture::line(), matrix, ""),
        stop: &stop,
    };
    let outcome = session.run();
    Run { outcome, answers: session.clients.answers, kernel }
}

const OFF: &str = "NUMA.NEWIDLE=off";

fn set(id: u64, text: &str) -> Step {
    Step::Ask(id, Request::Set { assignments: text.to_owned() })
}

fn lease(id: u64, text: &str) -> Step {
    Step::Ask(id, Request::Lease { assignments: text.to_owned() })
}

fn ask(request: Request) -> Step {
    Step::Ask(1, request)
}

fn kernel(change: impl FnOnce(&mut Kernel) + 'static) -> Step {
    Step::Kernel(Box::new(change))
}

fn cpus_change() -> Step {
    kernel(|kernel| kernel.exit = Some(Exit::CpusChanged))
}

/// Looks at the words that are published at this moment.
fn expect_words(expected: Vec<u64>) -> Step {
    kernel(move |kernel| assert!(kernel.words == expected, "other words are published"))
}

fn mainline() -> Vec<u64> {
    words_of(&Matrix::mainline(&fixture::line()))
}

fn mainline_and(text: &str) -> Vec<u64> {
    let machine = fixture::line();
    let mut matrix = Matrix::mainline(&machine);
    matrix.apply(&crate::flags::parse(text, &machine).unwrap());
    words_of(&matrix)
}

impl Run {
    fn set_report(&self, index: usize) -> &SetReport {
        match &self.answers[index] {
            Response::Set(report) => report,
            other => panic!("answer {index} is {other:?}"),
        }
    }

    fn attachment(&self, index: usize) -> (bool, bool, u64, u64) {
        match self.answers[index] {
            Response::Attachment(AttachmentReport {
                is_attached,
                has_changed,
                epoch,
                generation,
            }) => (is_attached, has_changed, epoch, generation),
            ref other => panic!("answer {index} is {other:?}"),
        }
    }

    fn history(&self) -> Vec<(u64, Cause, String)> {
        let told = |entry: &Entry| (entry.generation, entry.cause, entry.assignments.clone());
        match self.answers.last() {
            Some(Response::History(entries)) => entries.iter().map(told).collect(),
            other => panic!("the last answer is {other:?}"),
        }
    }

    fn refusal(&self, index: usize) -> (u8, &str) {
        match &self.answers[index] {
            Response::Error { code, message } => (*code, message),
            other => panic!("answer {index} is {other:?}"),
        }
    }

    fn exit_code(&self) -> u8 {
        self.outcome.as_ref().err().map_or(0, exit_code_of)
    }
}

#[test]
fn a_set_while_detached_takes_effect_at_the_next_attach() {
    let run = run([
        ask(Request::Detach),
        set(1, OFF),
        kernel(|kernel| assert!(!kernel.is_attached && kernel.words == mainline())),
        ask(Request::Attach),
        expect_words(mainline_and(OFF)),
        kernel(|kernel| assert_eq!(kernel.generation, 1)),
        set(1, "none"),
    ]);
    assert_eq!(run.attachment(0), (false, true, 1, 0));
    let report = run.set_report(1);
    assert_eq!((report.generation, report.words_changed), (1, 20));
    assert!(!report.is_in_effect);
    assert_eq!(run.attachment(2), (true, true, 2, 1), "each attach is an epoch");
    assert!(run.set_report(3).is_in_effect);
    assert_eq!(run.exit_code(), 0);
}

#[test]
fn what_is_so_already_is_answered_at_once_and_changes_nothing() {
    let run = run([ask(Request::Attach), ask(Request::Detach), ask(Request::Detach)]);
    assert_eq!(run.attachment(0), (true, false, 1, 0));
    assert_eq!(run.attachment(2), (false, false, 1, 0));
    assert_eq!(run.kernel.borrow().nr_loads, 1);
}

#[test]
fn while_detached_flags_and_history_are_told_and_counters_are_refused() {
    let steps =
        [Request::Get, Request::Detach, Request::Get, Request::Stats, Request::History].map(ask);
    let run = run(steps);
    let is_attached = |index: usize| match &run.answers[index] {
        Response::Flags { is_attached, plain, .. } => {
            assert!(!plain.is_empty());
            *is_attached
        }
        other => panic!("answer {index} is {other:?}"),
    };
    assert!(is_attached(0) && !is_attached(2));
    let (code, message) = run.refusal(3);
    assert_eq!(code, 3);
    assert!(message.contains("`scx_retune attach` first"), "{message}");
    assert_eq!(run.history(), [(0, Cause::Start, String::new())]);
}

#[test]
fn the_end_of_a_client_ends_its_leases_and_nobody_elses() {
    let run = run([
        lease(1, OFF),
        lease(2, "MC.WAKE_AFFINE=off"),
        Step::Leave(3),
        expect_words(mainline_and("NUMA.NEWIDLE=off,MC.WAKE_AFFINE=off")),
        Step::Leave(1),
        expect_words(mainline_and("MC.WAKE_AFFINE=off")),
        set(4, "MC@node0.WAKE_AFFINE=off"),
        Step::Leave(2),
        expect_words(mainline_and("MC@node0.WAKE_AFFINE=off")),
        ask(Request::History),
    ]);
    let causes: Vec<Cause> = run.history().into_iter().map(|(_, cause, _)| cause).collect();
    let lease = Cause::Lease;
    assert_eq!(causes, [Cause::Start, lease, lease, Cause::LeaseEnded, Cause::LeaseEnded]);
}

#[test]
fn a_lease_can_be_ended_without_leaving() {
    let run = run([
        lease(1, OFF),
        ask(Request::Release),
        expect_words(mainline()),
        ask(Request::Release),
    ]);
    assert_eq!((run.set_report(1).generation, run.set_report(1).words_changed), (2, 20));
    assert_eq!((run.set_report(2).generation, run.set_report(2).words_changed), (2, 0));
}

#[test]
fn a_lease_outlives_a_detach_and_ends_while_detached() {
    let run = run([
        lease(1, OFF),
        Step::Ask(2, Request::Detach),
        Step::Ask(2, Request::Attach),
        expect_words(mainline_and(OFF)),
        Step::Ask(2, Request::Detach),
        Step::Leave(1),
        Step::Ask(2, Request::Attach),
        expect_words(mainline()),
    ]);
    assert_eq!(run.exit_code(), 0);
}

#[test]
fn a_restart_keeps_flags_generation_history_and_leases() {
    let run = run([
        set(1, OFF),
        lease(2, "MC.WAKE_AFFINE=off"),
        cpus_change(),
        set(1, "NUMA.WAKE_AFFINE=off"),
        expect_words(mainline_and("NUMA.NEWIDLE=off,MC.WAKE_AFFINE=off,NUMA.WAKE_AFFINE=off")),
        kernel(|kernel| assert_eq!((kernel.generation, kernel.nr_loads), (3, 2))),
        Step::Leave(2),
        expect_words(mainline_and("NUMA.NEWIDLE=off,NUMA.WAKE_AFFINE=off")),
        ask(Request::Attach),
        ask(Request::History),
    ]);
    assert_eq!(run.attachment(3), (true, false, 2, 4));
    let texts: Vec<String> = run.history().into_iter().map(|(_, _, text)| text).collect();
    assert_eq!(texts, ["", OFF, "MC.WAKE_AFFINE=off", "NUMA.WAKE_AFFINE=off", ""]);
}

#[test]
fn an_attach_that_cpus_race_with_is_tried_again() {
    let run = run([
        kernel(|kernel| kernel.refusals = [Refusal::Raced(anyhow!("once"))].into()),
        cpus_change(),
        set(1, OFF),
        expect_words(mainline_and(OFF)),
    ]);
    assert!(run.set_report(0).is_in_effect);
    assert_eq!((run.exit_code(), run.kernel.borrow().nr_loads), (0, 3));
}

#[test]
fn an_attach_that_always_loses_the_race_is_given_up_and_says_why() {
    let run = run([
        ask(Request::Detach),
        kernel(|kernel| {
            let raced = || Refusal::Raced(anyhow!("the number moved"));
            kernel.refusals = std::iter::repeat_with(raced).take(MAX_ATTEMPTS as usize).collect();
        }),
        ask(Request::Attach),
        set(1, OFF),
        ask(Request::Attach),
    ]);
    let (code, message) = run.refusal(1);
    assert_eq!(code, 3);
    assert!(message.contains("during each of 10 attempts"), "{message}");
    assert!(!run.set_report(2).is_in_effect);
    assert_eq!(run.attachment(3), (true, true, 2, 1), "and works again afterwards");
}

#[test]
fn an_attach_that_fails_is_the_clients_error_and_a_restart_that_fails_ends_the_run() {
    let busy = || Refusal::Failed(Error::environment("another one is loaded").into());
    let client = run([
        ask(Request::Detach),
        kernel(move |kernel| kernel.refusals = [busy()].into()),
        ask(Request::Attach),
        ask(Request::Get),
    ]);
    assert_eq!(client.refusal(1), (3, "another one is loaded"));
    assert_eq!(client.exit_code(), 0);
    let restart =
        run([kernel(move |kernel| kernel.refusals = [busy()].into()), cpus_change(), set(1, OFF)]);
    assert_eq!((restart.exit_code(), restart.answers.len()), (3, 0));
}

#[test]
fn an_ejection_ends_the_run_with_4_also_during_a_detach() {
    let stall = || kernel(|kernel| kernel.exit = Some(Exit::Ejected("stall".to_owned())));
    assert_eq!(run([stall(), ask(Request::Get)]).exit_code(), 4);
    let outside = run([kernel(|kernel| kernel.exit = Some(Exit::Unloaded))]);
    assert_eq!(outside.exit_code(), 4);
}

#[test]
fn the_history_is_bounded_and_has_changes_only() {
    let flips = (0..CAPACITY).flat_map(|_| [set(1, OFF), set(1, OFF), set(1, "mainline")]);
    let run = run(flips.chain([ask(Request::History)]));
    let history = run.history();
    assert_eq!(history.len(), CAPACITY);
    assert_eq!(history.last().unwrap().0, 2 * CAPACITY as u64);
}

#[test]
fn a_refused_set_changes_nothing() {
    let run =
        run([set(1, "NUMA9.NEWIDLE=off"), lease(1, "NUME.NEWIDLE=off"), ask(Request::History)]);
    assert_eq!((run.refusal(0).0, run.refusal(1).0), (2, 2));
    assert_eq!(run.history().len(), 1);
}

#[test]
fn a_preset_says_what_it_left_out() {
    let run = run([set(1, "2009-affine"), set(1, OFF)]);
    let left_out = &run.set_report(0).left_out;
    assert!(left_out.iter().any(|flag| flag.starts_with("BALANCE_EXEC: ")), "{left_out:?}");
    assert!(run.set_report(1).left_out.is_empty());
}

// ---- over a real socket ----

/// Runs a session with a real server in a thread of its own while `work` is its client.
fn with_server(work: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let server = Server::bind(&socket).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let session = scope.spawn(move || {
            let state = State::new(fixture::line(), Matrix::mainline(&fixture::line()), "");
            Session { loader: FakeLoader(Shared::default()), clients: server, state, stop }.run()
        });
        // A client that panics must not leave the session running, or the scope never ends.
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&socket)));
        stop.store(true, Ordering::Relaxed);
        session.join().unwrap().unwrap();
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(!socket.exists(), "the socket goes with the server");
}

fn plain_flags(socket: &Path) -> String {
    match client::ask(socket, &Request::Get).unwrap() {
        Response::Flags { plain, .. } => plain,
        other => panic!("get was answered by {other:?}"),
    }
}

#[test]
fn a_lease_ends_by_its_end_and_by_being_dropped() {
    with_server(|socket| {
        let before = plain_flags(socket);
        let mut lease = Lease::take(socket, OFF).unwrap();
        assert_eq!(lease.report().words_changed, 20);
        assert_ne!(plain_flags(socket), before);
        assert_eq!(lease.set("MC.WAKE_AFFINE=off").unwrap().generation, 2);
        assert_eq!(lease.end().unwrap().generation, 3);
        assert_eq!(plain_flags(socket), before);
        drop(Lease::take(socket, OFF).unwrap());
        while plain_flags(socket) != before {
            std::thread::yield_now();
        }
    });
}

#[test]
fn detach_and_attach_answer_over_the_socket_when_they_are_done() {
    with_server(|socket| {
        for (request, is_attached, epoch) in
            [(Request::Detach, false, 1), (Request::Attach, true, 2), (Request::Attach, true, 2)]
        {
            match client::ask(socket, &request).unwrap() {
                Response::Attachment(report) => {
                    assert_eq!((report.is_attached, report.epoch), (is_attached, epoch));
                }
                other => panic!("{request:?} was answered by {other:?}"),
            }
        }
    });
}
