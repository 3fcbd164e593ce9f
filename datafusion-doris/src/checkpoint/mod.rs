//! Epochs: how an unbounded source and a transactional sink agree on what is done.
//!
//! DataFusion has no barriers, so one *epoch* is one finite piece of source work, run to its end:
//!
//! ```text
//! begin_epoch(n), arm ── each source fixes one piece of work (some tablets of a snapshot, or one changelog window)
//!   execute the plan ── static sides are read now, after the ends of the pieces were fixed; every operator passes
//!                       rows on; the end of the stream flushes all of them
//!   write_epoch(n) ── the sink loads the rows and pre-commits: durable, not visible   ┐ committables
//!   record ── {positions, committables}, written under the next number, if it is free │ a CommitPermit
//!   commit(committables, permit) ── visible, repeated until it is done                ┘
//!   done mark ── the labels need not be asked for again
//! epoch_committed(n) ── the source may forget what it would have replayed
//! ```
//!
//! An error before the record rolls the epoch back: the sink aborts what it pre-committed and the source rewinds to
//! the position of the last committed epoch. After the record the epoch will become visible, by this process or by the
//! next start of the job, which begins with the newest record:
//!
//! ```text
//! read the newest record N of generation g ─▶ write N+1, if it is free: generation g+1 (older ones can write nothing now)
//!   each load of N that is not marked done ─▶ ask its label ─▶ commit │ nothing │ read its range again │ stop
//!   loads of the epoch after N ─▶ in no record: abort
//!   sources ─▶ positions of N
//! ```
//!
//! What a plan reads beside the sources is read anew by each epoch, or kept for a while ([`StaticSideExec`]).
//!
//! Without a store nothing is recorded, and a run that is begun again is at-least-once. The operators in between are a
//! checked list ([`check_stateless`]), because state that outlives an epoch would be lost with it.
//!
//! This module knows neither Doris nor HTTP. The changelog implements [`EpochSource`], the sink [`EpochSink`], and
//! [`coordinator::run`] drives both.

pub mod admin;
pub mod chain;
mod control;
pub mod coordinator;
pub mod fingerprint;
mod labels;
pub mod record;
pub mod recovery;
mod staged;
mod static_side;
pub mod store;
#[cfg(test)]
mod testing;
mod types;
mod whitelist;

pub use control::{RunControl, RunStatus};
pub use coordinator::{Checkpoints, RunOptions, RunSetup, merge_partitions};
pub use labels::{LabelSeries, LoadSearch};
pub use record::Checkpoint;
pub use recovery::{CommitPermit, LoadKind};
pub use staged::{StagePlace, Staged, StagedObject};
pub use static_side::StaticSideExec;
pub use store::CheckpointStore;
pub use types::{
    AbortOutcome, Committable, Epoch, EpochSink, EpochSource, Generation, SourceFinder, SourcePosition, WriteOutcome,
};
pub use whitelist::{check_stateless, keeps_no_build_state};
