//! Epochs: how an unbounded source and a transactional sink agree on what is done.
//!
//! DataFusion has no barriers, so one *epoch* is one finite piece of source work, run to its end:
//!
//! ```text
//! begin_epoch(n), arm ── each source fixes one piece of work (a snapshot, or one changelog window)
//!   execute the plan ── static sides are read now, after the ends of the pieces were fixed; every operator passes
//!                       rows on; the end of the stream flushes all of them
//!   write_epoch(n) ── the sink loads the rows and pre-commits: durable, not visible   ┐ committables
//!   [a durable store would write {position, committables} here]                       │
//!   commit(committables) ── visible                                                   ┘
//! epoch_committed(n) ── the source may forget what it would have replayed
//! ```
//!
//! An error before the commit rolls the epoch back: the sink aborts what it pre-committed and the source rewinds to
//! the position of the last committed epoch. The operators in between are a checked list
//! ([`check_stateless`]), because state that outlives an epoch would be lost with it.
//!
//! This module knows neither Doris nor HTTP. The changelog implements [`EpochSource`], the sink [`EpochSink`], and
//! [`coordinator::run`] drives both.

pub mod chain;
pub mod coordinator;
pub mod fingerprint;
pub mod record;
pub mod recovery;
pub mod store;
#[cfg(test)]
mod testing;
mod types;
mod whitelist;

pub use coordinator::merge_partitions;
pub use record::Checkpoint;
pub use recovery::CommitPermit;
pub use store::CheckpointStore;
pub use types::{
    AbortOutcome, Committable, Epoch, EpochSink, EpochSource, Generation, SourceFinder, SourcePosition, WriteOutcome,
};
pub use whitelist::{check_stateless, keeps_no_build_state};
