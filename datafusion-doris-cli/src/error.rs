//! What can go wrong in the shell, and the exit code each case ends the process with.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use crate::command::CommandError;
use crate::interrupt::Signal;
use crate::split::SplitError;
use crate::substitute::SubstituteError;

/// Result of the shell's own functions.
pub type Result<T, E = ShellError> = std::result::Result<T, E>;

/// Why a statement or command did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShellError {
    /// DataFusion, or the connector below it, refused or failed.
    #[error("{}", describe(.0))]
    Query(#[source] Box<DataFusionError>),
    /// Doris refused a statement of `\doris`, or could not be reached.
    #[error("{}", chain(.0))]
    Doris(#[source] Box<datafusion_doris::Error>),
    /// A command was not understood.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A placeholder has no value.
    #[error(transparent)]
    Substitute(#[from] SubstituteError),
    /// A script cannot be split into statements.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// A result could not be printed in the chosen format.
    #[error("cannot print the result: {0}")]
    Render(#[from] ArrowError),
    /// `\assert` or `\assert_empty` did not hold.
    #[error("assertion failed: {0}")]
    Assertion(String),
    /// A job is unknown, or its name is taken.
    #[error("{0}")]
    Job(String),
    /// A job did not catch up in time.
    #[error("job `{name}` has not caught up within {} s: give `\\catchup {name} SECONDS` more time", .waited.as_secs())]
    NotCaughtUp {
        /// The job.
        name: String,
        /// How long was waited.
        waited: Duration,
    },
    /// Arguments of the command line do not fit.
    #[error("{0}")]
    Arguments(String),
    /// There is no server for `\doris`.
    #[error("not connected to a Doris server: use `\\connect URL [USER [PASSWORD]]`, or start with --sandbox")]
    NotConnected,
    /// The embedded sandbox could not start.
    #[error("cannot start the sandbox: {0}")]
    Sandbox(String),
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The terminal or the signal handlers could not be set up.
    #[error("cannot use the terminal: {0}")]
    Terminal(String),
    /// The user asked to stop.
    #[error("cancelled")]
    Interrupted(Signal),
    /// Nobody reads the output any more.
    #[error("the output was closed")]
    OutputClosed,
}

impl From<DataFusionError> for ShellError {
    fn from(error: DataFusionError) -> Self {
        Self::Query(Box::new(error))
    }
}

impl From<datafusion_doris::Error> for ShellError {
    fn from(error: datafusion_doris::Error) -> Self {
        Self::Doris(Box::new(error))
    }
}

impl ShellError {
    /// The process's exit code: 1 for a failure, 2 for wrong arguments, 130 and 143 for the signals, 141 when the output was closed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(signal) => signal.exit_code(),
            Self::OutputClosed => 141,
            Self::Arguments(_) => 2,
            _ => 1,
        }
    }

    /// Whether the shell must end, whatever it is running: at the prompt, other errors only end the statement.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::OutputClosed | Self::Interrupted(Signal::Terminate))
    }
}

/// A DataFusion error in one line: without wrappers that say nothing, and without a node's `Debug` dump.
fn describe(error: &DataFusionError) -> String {
    if let DataFusionError::External(inner) = error.find_root()
        && let Some(error) = inner.downcast_ref::<datafusion_doris::Error>()
    {
        return chain(error);
    }
    let text = error.strip_backtrace();
    const PIPELINE: &str = "Cannot execute pipeline breaking queries, operator: ";
    match text.split_once(PIPELINE) {
        Some((_, rest)) => {
            let operator = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            format!(
                "{operator} needs the end of its input, and this input never ends: leave it out, or bound the read \
                 with the table option 'source.scan.bounded-mode' = 'latest'"
            )
        }
        None => text,
    }
}

/// An error and its causes, each said once.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.contains(&reason) {
            let _ = write!(text, ": {reason}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_breaker_is_named_without_the_dump_of_its_plan() {
        let plan = DataFusionError::Plan(
            "Cannot execute pipeline breaking queries, operator: AggregateExec { mode: Final, password: x }".into(),
        );
        let error = ShellError::from(DataFusionError::Context("SanityCheckPlan".into(), Box::new(plan)));
        assert!(error.to_string().starts_with("AggregateExec needs the end of its input"), "{error}");
        assert!(!error.to_string().contains("password"), "{error}");
    }

    #[test]
    fn exit_codes_follow_the_shell_s_customs() {
        assert_eq!(ShellError::Interrupted(Signal::Interrupt).exit_code(), 130);
        assert_eq!(ShellError::Interrupted(Signal::Terminate).exit_code(), 143);
        assert_eq!(ShellError::OutputClosed.exit_code(), 141);
        assert_eq!(ShellError::NotConnected.exit_code(), 1);
        assert_eq!(ShellError::Arguments("no".into()).exit_code(), 2);
    }
}
