//! What is tried: every point, with every fault that it can have, in both phases and every mode of writing.

use std::fmt;

/// What happens at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process ends, without any further instruction of it.
    Crash,
    /// An error that a later attempt does not meet.
    Passing,
    /// An error that says that a later attempt would meet it too.
    Permanent,
}

/// What the job is doing meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It reads the rows of the source, tablet by tablet.
    Snapshot,
    /// It follows the changes.
    Changelog,
}

/// How the sinks write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One streamed load per epoch.
    Streaming,
    /// Several of them.
    Parallel,
    /// Many of them, one after the other.
    Batch,
    /// Objects in a store, and one INSERT per epoch.
    Tvf,
}

impl Mode {
    pub const ALL: &[Mode] = &[Mode::Streaming, Mode::Parallel, Mode::Batch, Mode::Tvf];
    /// Those that send bodies of Stream Loads.
    const LOADS: &[Mode] = &[Mode::Streaming, Mode::Parallel, Mode::Batch];
    const STAGED: &[Mode] = &[Mode::Tvf];

    /// Options of the sinks.
    pub fn options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            // Small chunks without compression: a body of several.
            Mode::Streaming => &[("sink.buffer-size", "1kb"), ("sink.properties.compress_type", "")],
            Mode::Parallel => {
                &[("sink.buffer-size", "1kb"), ("sink.properties.compress_type", ""), ("sink.parallelism", "3")]
            }
            // A few rows each, so that an epoch is several.
            Mode::Batch => &[
                ("sink.write-mode", "STREAM_LOAD_BATCH"),
                ("sink.buffer-flush.max-rows", "5"),
                ("sink.buffer-size", "1kb"),
                ("sink.properties.compress_type", ""),
                ("sink.parallelism", "2"),
            ],
            Mode::Tvf => &[
                ("sink.write-mode", "TVF"),
                ("sink.parallelism", "2"),
                ("sink.s3.region", "us-east-1"),
                ("sink.s3.bucket", "stage"),
                ("sink.s3.prefix", "fp"),
                ("sink.s3.access-key", "sandbox-access"),
                ("sink.s3.secret-key", "secret"),
                ("sink.s3.clean-up", "true"),
            ],
        }
    }
}

/// What becomes of a job that meets an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It tries again, or does without.
    GoesOn,
    /// It ends with an error, and is started again.
    Ends,
}

/// A point and what may happen there.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub point: &'static str,
    /// An earlier process that crashed there left its work behind.
    pub after: Option<&'static str>,
    /// Which times the point is reached are tried; two jobs run beside each other.
    pub hits: [usize; 2],
    pub crash: bool,
    pub passing: Option<Then>,
    pub permanent: Option<Then>,
    /// Modes in which the point is reached.
    pub modes: &'static [Mode],
}

const fn row(point: &'static str, passing: Option<Then>, permanent: Option<Then>) -> Row {
    Row { point, after: None, hits: [1, 3], crash: true, passing, permanent, modes: Mode::ALL }
}

impl Row {
    /// With work of an earlier process that crashed at `point`; once per job and start.
    const fn after(self, point: &'static str) -> Self {
        Row { after: Some(point), hits: [1, 2], ..self }
    }

    /// Reached in these modes only.
    const fn only(self, modes: &'static [Mode]) -> Self {
        Row { modes, ..self }
    }

    /// Reached once per job and start.
    const fn once(self) -> Self {
        Row { hits: [1, 2], ..self }
    }
}

const ON: Option<Then> = Some(Then::GoesOn);
const END: Option<Then> = Some(Then::Ends);

/// Every point of the crate is here; the harness checks it.
pub const ROWS: &[Row] = &[
    row("claim", ON, END).after("commit"),
    row("claimed", ON, END).after("epoch-written"),
    Row { hits: [1, 1], ..row("recover", ON, END).after("commit") },
    row("drop-leftovers", ON, END).after("epoch-written"),
    row("restore", ON, END).after("recorded"),
    row("epoch-begin", ON, END),
    row("epoch-armed", ON, END),
    row("epoch-pinned", ON, END),
    row("body-begin", ON, END).only(Mode::LOADS),
    row("body-chunk", ON, END).only(Mode::LOADS),
    row("body-last", ON, END).only(Mode::LOADS),
    row("pre-commit", ON, END).only(Mode::LOADS),
    row("stage-object", ON, END).only(Mode::STAGED),
    row("staged", ON, END).only(Mode::STAGED),
    // A lost answer is resolved by the label, whatever the error says.
    row("pre-committed", ON, None).only(Mode::LOADS),
    row("epoch-written", ON, END),
    row("record", ON, END),
    row("store-unlinked", ON, END),
    row("store-linked", ON, END),
    row("recorded", ON, END),
    row("commit", ON, END),
    row("committed", ON, None),
    // Marks and old records are a help: the job does without.
    row("done-mark", ON, ON),
    row("done-marked", ON, ON),
    row("prune", ON, ON),
    row("epoch-committed", None, None),
    row("offset-publish", ON, ON),
    row("offset-published", ON, ON),
    row("savepoint", ON, END).once(),
    row("savepoint-kept", ON, END).once(),
    // The second process finishes what the first recorded, and dies of the same.
    Row { hits: [1, 1], ..row("commit", ON, END).after("commit") },
    Row { hits: [1, 1], ..row("committed", ON, None).after("commit") },
    Row { hits: [1, 1], ..row("done-mark", ON, ON).after("committed") },
];

/// One run.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub row: &'static Row,
    pub fault: Fault,
    pub phase: Phase,
    pub mode: Mode,
    /// The time that the point is reached.
    pub hit: usize,
}

impl Case {
    /// What a job does that meets the error.
    pub fn then(&self) -> Option<Then> {
        match self.fault {
            Fault::Crash => None,
            Fault::Passing => self.row.passing,
            Fault::Permanent => self.row.permanent,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, fault, phase, mode, hit } = self;
        let after = row.after.map(|point| format!("after-{point}/")).unwrap_or_default();
        let text = format!("{after}{}/{fault:?}/{phase:?}/{mode:?}/{hit}", row.point);
        f.write_str(&text.to_ascii_lowercase())
    }
}

/// All runs. Crashes fall into an early and a later epoch, errors into one of them.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for row in ROWS {
        for mode in row.modes.iter().copied() {
            for phase in [Phase::Snapshot, Phase::Changelog] {
                let [early, later] = row.hits;
                let mut add = |fault, hit| cases.push(Case { row, fault, phase, mode, hit });
                if row.crash {
                    add(Fault::Crash, early);
                    if later != early {
                        add(Fault::Crash, later);
                    }
                }
                if row.passing.is_some() {
                    add(Fault::Passing, later);
                }
                if row.permanent.is_some() {
                    add(Fault::Permanent, early);
                }
            }
        }
    }
    cases
}
