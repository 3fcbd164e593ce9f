//! What happened to a load, a commit or an abort, and what is done then: the one place of these decisions.
//!
//! The client tells what happened, and writer and committer do what is said here. `docs/outcomes.md` is printed from
//! these functions ([`markdown`]), so that a reader sees what the code does.

use std::fmt::{self, Write as _};

use super::load_state::{LabelState, NextStep, PendingOperation, after_unknown_outcome};
use super::stream_load::ExistingJob;
use super::txn::{TxnOperation, TxnOutcome, contains_ignoring_case};
use crate::error::{Error, Retry};

/// How the rows of a load become visible, and with it what can be found out about the load later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadKind {
    /// By a commit after the load.
    TwoPhase,
    /// By the load itself.
    Plain,
    /// Together with loads of others, in a transaction of the server: the load has no label.
    Group,
}

impl LoadKind {
    /// All kinds.
    pub const ALL: [LoadKind; 3] = [LoadKind::TwoPhase, LoadKind::Plain, LoadKind::Group];
}

/// Why a server refused a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Too many loads since the last compaction (-235).
    TooManyVersions,
    /// Too many transactions of the database are open, or of the table are not published.
    TooManyTransactions,
    /// No BE takes the load, or too few replicas are there.
    NoBackend,
    /// The BE is short of memory.
    Memory,
    /// HTTP 429.
    Busy,
    /// More rows were refused than `max_filter_ratio` allows.
    FilteredRows,
    /// Credentials or privileges.
    Access,
    /// The FE did not answer the BE in time: nobody knows whether the transaction lives.
    Unclear,
    /// Any other reason.
    Other,
}

/// Texts by which a reason is known, in the order in which they are looked for.
const TEXTS: [(Refusal, &[&str]); 6] = [
    (Refusal::TooManyTransactions, &["current running txns on db", "max_running_txn_num_per_db", "publishing_txn_num"]),
    (Refusal::TooManyVersions, &["-235", "too many versions", "TOO_MANY_VERSION"]),
    // A BE is down, and too few others have the tablet: `alive replica num 0 < load required replica num 1`,
    // `success replica num 0 is less than quorum replica num 1`.
    (Refusal::NoBackend, &["no backend load available", "no available backend", "replica num"]),
    (Refusal::Memory, &["memory limit"]),
    (Refusal::FilteredRows, &["too many filtered rows"]),
    (Refusal::Unclear, &["rpc", "timeout", "timed out", "no master"]),
];

impl Refusal {
    /// All reasons.
    pub const ALL: [Refusal; 9] = [
        Refusal::TooManyVersions,
        Refusal::TooManyTransactions,
        Refusal::NoBackend,
        Refusal::Memory,
        Refusal::Busy,
        Refusal::FilteredRows,
        Refusal::Access,
        Refusal::Unclear,
        Refusal::Other,
    ];

    /// The reason that the server's text gives. Texts are compared without case.
    pub fn of(message: &str) -> Self {
        let found = TEXTS.iter().find(|(_, texts)| texts.iter().any(|text| contains_ignoring_case(message, text)));
        found.map_or(Refusal::Other, |(reason, _)| *reason)
    }

    /// The texts by which [`Self::of`] knows it.
    fn texts(self) -> &'static [&'static str] {
        TEXTS.iter().find(|(reason, _)| *reason == self).map_or(&[], |(_, texts)| texts)
    }

    /// What a user can do about it.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Refusal::TooManyVersions => Some(
                "the table gets more loads than it can compact: write fewer and larger ones, wait for the compaction, or \
                 raise 'sink.max-retries'",
            ),
            Refusal::TooManyTransactions => Some(
                "wait until other loads into this database have ended, see SHOW PROC '/transactions', or raise \
                 'sink.max-retries' or max_running_txn_num_per_db",
            ),
            Refusal::NoBackend => Some("see SHOW BACKENDS"),
            Refusal::Memory => {
                Some("lower 'sink.parallelism', or give the load more by 'sink.properties.exec_mem_limit'")
            }
            Refusal::FilteredRows => {
                Some("'sink.properties.max_filter_ratio' is the share of rows that may be refused")
            }
            Refusal::Busy | Refusal::Access | Refusal::Unclear | Refusal::Other => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::TooManyVersions => "too many versions",
            Refusal::TooManyTransactions => "too many running transactions",
            Refusal::NoBackend => "no backend, or too few replicas",
            Refusal::Memory => "memory limit",
            Refusal::Busy => "HTTP 429",
            Refusal::FilteredRows => "too many filtered rows",
            Refusal::Access => "HTTP 401 or 403, wrong password, missing privilege",
            Refusal::Unclear => "the FE does not answer, or is not ready",
            Refusal::Other => "another reason",
        })
    }
}

/// What came of one attempt to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadEvent {
    /// Status `Success`.
    Loaded,
    /// Status `Publish Timeout`: committed, visible soon.
    PublishTimeout,
    /// Status `Label Already Exists`, with the state that the answer tells.
    LabelTaken(ExistingJob),
    /// The BE refused.
    Refused(Refusal),
    /// The FE refused before it named a BE.
    AtFrontend(Refusal),
    /// No connection: the node is down, also one that a redirect names.
    NotReached,
    /// The connection broke before the end of the body.
    CutBody,
    /// The body was sent to its end; the answer was lost, late, unreadable or a server error (5xx).
    LostAnswer,
}

impl LoadEvent {
    /// All events.
    pub fn all() -> impl Iterator<Item = LoadEvent> {
        [LoadEvent::Loaded, LoadEvent::PublishTimeout]
            .into_iter()
            .chain(ExistingJob::ALL.map(LoadEvent::LabelTaken))
            .chain(Refusal::ALL.map(LoadEvent::Refused))
            .chain(Refusal::ALL.map(LoadEvent::AtFrontend))
            .chain([LoadEvent::NotReached, LoadEvent::CutBody, LoadEvent::LostAnswer])
    }
}

impl fmt::Display for LoadEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadEvent::Loaded => f.write_str("`Success`"),
            LoadEvent::PublishTimeout => f.write_str("`Publish Timeout`"),
            LoadEvent::LabelTaken(job) => write!(f, "`Label Already Exists`, {job}"),
            LoadEvent::Refused(reason) => write!(f, "BE: {reason}"),
            LoadEvent::AtFrontend(reason) => write!(f, "FE: {reason}"),
            LoadEvent::NotReached => f.write_str("no connection to the FE, or to the BE of the redirect"),
            LoadEvent::CutBody => f.write_str("connection lost within the body"),
            LoadEvent::LostAnswer => f.write_str("connection lost after the body, timeout, 5xx, unreadable answer"),
        }
    }
}

/// What is done after a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadStep {
    /// The load is done.
    Done,
    /// The load is done, and its rows can be read a little later.
    DoneNotVisible,
    /// It failed.
    Failed(Retry),
}

/// Decides after one attempt to load.
///
/// A load by group commit is repeated only where it did not reach a BE: it has no label by which its outcome could be
/// found out, and rows of a body that was cut may be in the group already.
pub fn after_load(event: LoadEvent, kind: LoadKind) -> LoadStep {
    use LoadKind::{Group, TwoPhase};
    use Retry::{AskLabelState, CannotTell, LabelTaken, Later, Never, SameLabel};
    let retry = match (event, kind) {
        (LoadEvent::Loaded, _) => return LoadStep::Done,
        (LoadEvent::PublishTimeout, _) => return LoadStep::DoneNotVisible,
        (LoadEvent::NotReached, _) => SameLabel,
        (LoadEvent::AtFrontend(reason), _) => match reason {
            Refusal::TooManyVersions | Refusal::TooManyTransactions => Later,
            // Nothing was begun.
            Refusal::NoBackend | Refusal::Memory | Refusal::Busy | Refusal::Unclear => SameLabel,
            Refusal::FilteredRows | Refusal::Access | Refusal::Other => Never,
        },
        // Committed already, and not by this writer; or a server that made the label itself.
        (LoadEvent::LabelTaken(ExistingJob::Finished), TwoPhase) | (LoadEvent::LabelTaken(_), Group) => Never,
        (LoadEvent::LabelTaken(_), _) => LabelTaken,
        (LoadEvent::Refused(Refusal::FilteredRows | Refusal::Access | Refusal::Other), _) => Never,
        (LoadEvent::Refused(_) | LoadEvent::CutBody | LoadEvent::LostAnswer, Group) => CannotTell,
        (LoadEvent::Refused(Refusal::TooManyVersions | Refusal::TooManyTransactions), _) => Later,
        (LoadEvent::Refused(Refusal::NoBackend | Refusal::Memory | Refusal::Busy), _) => SameLabel,
        (LoadEvent::Refused(Refusal::Unclear) | LoadEvent::LostAnswer, _) => AskLabelState,
        // What is not complete is never committed.
        (LoadEvent::CutBody, _) => SameLabel,
    };
    LoadStep::Failed(retry)
}

/// What came of one attempt to commit or to abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxnEvent {
    /// Status `Success`.
    Done,
    /// It had been committed before.
    AlreadyCommitted,
    /// It had been aborted before.
    AlreadyAborted,
    /// Its load is still running.
    StillLoading,
    /// Doris does not know the transaction.
    NotFound,
    /// Refused for good: credentials, privileges, HTTP 4xx.
    Refused,
    /// Another status or text, an unreadable answer, HTTP 429 or 5xx.
    Unclear,
    /// The node was not reached, or the answer was lost.
    Lost,
}

impl TxnEvent {
    /// All events.
    pub const ALL: [TxnEvent; 8] = [
        TxnEvent::Done,
        TxnEvent::AlreadyCommitted,
        TxnEvent::AlreadyAborted,
        TxnEvent::StillLoading,
        TxnEvent::NotFound,
        TxnEvent::Refused,
        TxnEvent::Unclear,
        TxnEvent::Lost,
    ];
}

impl From<&TxnOutcome> for TxnEvent {
    fn from(outcome: &TxnOutcome) -> Self {
        match outcome {
            TxnOutcome::Done => TxnEvent::Done,
            TxnOutcome::AlreadyCommitted => TxnEvent::AlreadyCommitted,
            TxnOutcome::AlreadyAborted => TxnEvent::AlreadyAborted,
            TxnOutcome::StillLoading => TxnEvent::StillLoading,
            TxnOutcome::NotFound => TxnEvent::NotFound,
            TxnOutcome::Refused { retry: Retry::Never, .. } => TxnEvent::Refused,
            TxnOutcome::Refused { .. } => TxnEvent::Unclear,
        }
    }
}

impl From<&Error> for TxnEvent {
    /// What it means that there is an error instead of an answer.
    fn from(error: &Error) -> Self {
        if error.retry() == Retry::Never { TxnEvent::Refused } else { TxnEvent::Lost }
    }
}

impl fmt::Display for TxnEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TxnEvent::Done => "`Success`",
            TxnEvent::AlreadyCommitted => "already committed or visible",
            TxnEvent::AlreadyAborted => "already aborted",
            TxnEvent::StillLoading => "is prepare: its load is still running",
            TxnEvent::NotFound => "transaction not found",
            TxnEvent::Refused => "refused: password, privilege, HTTP 4xx",
            TxnEvent::Unclear => "another status or text, unreadable answer, HTTP 429 or 5xx",
            TxnEvent::Lost => "no connection, or the answer was lost",
        })
    }
}

/// What is done after an attempt to commit or abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxnStep {
    /// It has its effect, whoever did it.
    Done,
    /// Send it again after a pause, `sink.max-retries` times at most.
    Again,
    /// Ask the label's state once, then decide by it; open states count as [`Self::Again`].
    Look,
    /// Ask the label's state until it tells ([`after_unknown_outcome`]).
    AskLabelState,
    /// Too late: the rows are visible.
    Visible,
    /// End with an error.
    Stop,
}

/// Decides after one attempt to commit or to abort. Both may be sent again: the server does them once.
pub fn after_txn(operation: TxnOperation, event: TxnEvent) -> TxnStep {
    use TxnOperation::{Abort, Commit};
    match (event, operation) {
        (TxnEvent::Done, _) => TxnStep::Done,
        (TxnEvent::AlreadyCommitted, Commit) => TxnStep::Done,
        (TxnEvent::AlreadyCommitted, Abort) => TxnStep::Visible,
        // The rows are lost.
        (TxnEvent::AlreadyAborted, Commit) => TxnStep::Stop,
        (TxnEvent::AlreadyAborted, Abort) => TxnStep::Done,
        (TxnEvent::StillLoading | TxnEvent::Unclear, _) => TxnStep::Again,
        // Expired and cleaned up, in either state.
        (TxnEvent::NotFound, Commit) => TxnStep::Look,
        (TxnEvent::NotFound, Abort) => TxnStep::Done,
        (TxnEvent::Refused, _) => TxnStep::Stop,
        (TxnEvent::Lost, Commit) => TxnStep::AskLabelState,
        (TxnEvent::Lost, Abort) => TxnStep::Again,
    }
}

/// The tables of this module, as Markdown.
pub fn markdown() -> String {
    let mut out = String::from(
        "| What came of a load | two-phase commit | without | group commit |\n| --- | --- | --- | --- |\n",
    );
    for event in LoadEvent::all() {
        let [two_phase, plain, group] = LoadKind::ALL.map(|kind| step_text(after_load(event, kind)));
        let _ = writeln!(out, "| {event} | {two_phase} | {plain} | {group} |");
    }
    out.push_str("\n| Reason of a refusal | Known by | Advice in the error |\n| --- | --- | --- |\n");
    for reason in Refusal::ALL {
        let texts: Vec<String> = reason.texts().iter().map(|text| format!("`{text}`")).collect();
        let _ = writeln!(out, "| {reason} | {} | {} |", texts.join(", "), reason.advice().unwrap_or_default());
    }
    out.push_str("\n| What came of it | commit | abort |\n| --- | --- | --- |\n");
    for event in TxnEvent::ALL {
        let [commit, abort] =
            [TxnOperation::Commit, TxnOperation::Abort].map(|operation| txn_step_text(after_txn(operation, event)));
        let _ = writeln!(out, "| {event} | {commit} | {abort} |");
    }
    out.push_str("\n| State of the label |");
    for operation in PendingOperation::ALL {
        let _ = write!(out, " {operation} |");
    }
    out.push_str("\n| --- |");
    out.push_str(&" --- |".repeat(PendingOperation::ALL.len()));
    for state in LabelState::ALL {
        let _ = write!(out, "\n| `{state}` |");
        for operation in PendingOperation::ALL {
            let _ = write!(out, " {} |", next_step_text(after_unknown_outcome(operation, state)));
        }
    }
    out.push('\n');
    out
}

fn step_text(step: LoadStep) -> &'static str {
    match step {
        LoadStep::Done => "done",
        LoadStep::DoneNotVisible => "done, visible soon",
        LoadStep::Failed(retry) => match retry {
            Retry::Never => "error",
            Retry::SameLabel => "send again",
            Retry::Later => "back off, send again",
            Retry::LabelTaken => "free the label, send again",
            Retry::AskLabelState => "ask the label's state",
            Retry::CannotTell => "error: outcome unknown",
        },
    }
}

fn txn_step_text(step: TxnStep) -> &'static str {
    match step {
        TxnStep::Done => "done",
        TxnStep::Again => "again",
        TxnStep::Look => "ask the label's state once, else again",
        TxnStep::AskLabelState => "ask the label's state",
        TxnStep::Visible => "error: the rows are visible",
        TxnStep::Stop => "error",
    }
}

fn next_step_text(step: NextStep) -> &'static str {
    match step {
        NextStep::Done => "done",
        NextStep::CommitAgain => "commit again",
        NextStep::AbortAgain => "abort",
        NextStep::Resend => "send the rows",
        NextStep::Wait => "wait",
        NextStep::Stop => "error",
    }
}

#[cfg(test)]
mod tests;
