//! Places at which a test ends the process or makes a step fail: between two effects that outlive the process.
//!
//! Without the feature `failpoints` (the default) every call is an empty function. With it each place asks the crate
//! `fail` what to do: nothing, run a callback (which ends the process), or `return(passing)` and `return(permanent)`,
//! which make it fail with an error that its surroundings could give. `tests/failpoints` goes through all of them.

use crate::error::Result;

macro_rules! points {
    ($($(#[$doc:meta])+ $name:ident = $text:literal),+ $(,)?) => {
        $($(#[$doc])+ pub(crate) const $name: &str = $text;)+

        /// The names of all places.
        #[cfg(feature = "failpoints")]
        pub const ALL: &[&str] = &[$($text),+];
    };
}

points! {
    /// A start has decided which record to write, and has not written it.
    CLAIM = "claim",
    /// The record of a start is there.
    CLAIMED = "claimed",
    /// Before what an earlier generation recorded is committed.
    RECOVER = "recover",
    /// Before the loads of an unrecorded epoch are dropped.
    DROP_LEFTOVERS = "drop-leftovers",
    /// Before a source goes to the recorded position.
    RESTORE = "restore",
    /// Before the sources fix their pieces of work.
    EPOCH_BEGIN = "epoch-begin",
    /// They have fixed them.
    EPOCH_ARMED = "epoch-armed",
    /// The start of the sources is recorded.
    EPOCH_PINNED = "epoch-pinned",
    /// Before the first chunk of a body, and with it the load, is begun.
    BODY_BEGIN = "body-begin",
    /// Before a further chunk.
    BODY_CHUNK = "body-chunk",
    /// Before the last chunk.
    BODY_LAST = "body-last",
    /// The body is sent, its end is not.
    PRE_COMMIT = "pre-commit",
    /// The server has pre-committed and answered.
    PRE_COMMITTED = "pre-committed",
    /// Before a staged object is begun.
    STAGE_OBJECT = "stage-object",
    /// All objects of a load are there.
    STAGED = "staged",
    /// The epoch is written, its record is not.
    EPOCH_WRITTEN = "epoch-written",
    /// Before a record is created.
    RECORD = "record",
    /// A file of the local store is complete under its temporary name.
    STORE_UNLINKED = "store-unlinked",
    /// It has its name; its directory is not flushed.
    STORE_LINKED = "store-linked",
    /// A record is there, whoever wrote it does not know it.
    RECORDED = "recorded",
    /// Before the request of a commit.
    COMMIT = "commit",
    /// The server has committed and answered.
    COMMITTED = "committed",
    /// The loads are visible, the record is not marked as done.
    DONE_MARK = "done-mark",
    /// It is marked.
    DONE_MARKED = "done-marked",
    /// Before an old object is removed.
    PRUNE = "prune",
    /// The epoch is visible and done, its sources do not know it.
    EPOCH_COMMITTED = "epoch-committed",
    /// Before a position is written to the offset table.
    OFFSET_PUBLISH = "offset-publish",
    /// It is written, whoever wrote it does not know it.
    OFFSET_PUBLISHED = "offset-published",
    /// Before a savepoint is written.
    SAVEPOINT = "savepoint",
    /// It is there.
    SAVEPOINT_KEPT = "savepoint-kept",
}

#[cfg(feature = "failpoints")]
pub use self::on::{Kind, injected};
#[cfg(feature = "failpoints")]
pub(crate) use self::on::{answer, file, request, store};
#[cfg(feature = "failpoints")]
pub use fail;

#[cfg(feature = "failpoints")]
mod on {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Result;
    use crate::error::{Error, Retry};

    static INJECTED: AtomicUsize = AtomicUsize::new(0);

    /// What an injected error says about a further attempt.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Kind {
        /// It may succeed.
        Passing,
        /// It fails as well.
        Permanent,
    }

    /// Errors that were injected into this process.
    pub fn injected() -> usize {
        INJECTED.load(Ordering::Relaxed)
    }

    fn hit(point: &str) -> Option<Kind> {
        fail::eval(point, |kind| {
            INJECTED.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(point, ?kind, "an error is injected");
            if kind.as_deref() == Some("permanent") { Kind::Permanent } else { Kind::Passing }
        })
    }

    fn source() -> Box<dyn std::error::Error + Send + Sync> {
        "injected by a failpoint".into()
    }

    /// A request that does not reach the server, or that it refuses for good.
    pub(crate) fn request(point: &'static str) -> Result<()> {
        let (host, operation) = ("failpoint".to_string(), point.to_string());
        match hit(point) {
            None => Ok(()),
            Some(Kind::Passing) => Err(Error::Transport { host, operation, retry: Retry::SameLabel, source: source() }),
            Some(Kind::Permanent) => Err(Error::Auth { host, message: format!("injected at {point}") }),
        }
    }

    /// The answer to a request that had its effect is lost.
    pub(crate) fn answer(point: &'static str) -> Result<()> {
        match hit(point) {
            None => Ok(()),
            Some(_) => Err(Error::Transport {
                host: "failpoint".to_string(),
                operation: point.to_string(),
                retry: Retry::AskLabelState,
                source: source(),
            }),
        }
    }

    /// A request to the checkpoint store that fails, with its effect or without.
    pub(crate) fn store(point: &'static str) -> Result<()> {
        let retry = match hit(point) {
            None => return Ok(()),
            Some(Kind::Passing) => Retry::SameLabel,
            Some(Kind::Permanent) => Retry::Never,
        };
        Err(Error::CheckpointStore { operation: "failpoint", object: point.to_string(), retry, source: source() })
    }

    /// A failure of the file system.
    pub(crate) fn file(point: &'static str) -> io::Result<()> {
        match hit(point) {
            None => Ok(()),
            Some(Kind::Passing) => Err(io::Error::other(source())),
            Some(Kind::Permanent) => Err(io::Error::new(io::ErrorKind::PermissionDenied, source())),
        }
    }
}

#[cfg(not(feature = "failpoints"))]
pub(crate) use self::off::{answer, file, request, store};

#[cfg(not(feature = "failpoints"))]
mod off {
    use super::Result;

    #[inline(always)]
    pub(crate) fn request(_: &'static str) -> Result<()> {
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn answer(_: &'static str) -> Result<()> {
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn store(_: &'static str) -> Result<()> {
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn file(_: &'static str) -> std::io::Result<()> {
        Ok(())
    }
}
