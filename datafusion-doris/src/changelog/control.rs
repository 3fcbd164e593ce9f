//! The long-lived half of a changelog read: where it stands, and how it is steered.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::window::{Window, WindowPlanner, millis_until_closed};
use crate::checkpoint::{Epoch, SourcePosition};
use crate::protocol::Tso;

/// Shortest pause between two questions for the server's time, when somebody waits for an instant to close.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// Statements of the snapshot that the first epoch reads; a long snapshot is many epochs of about the same time.
const FIRST_STATEMENTS: usize = 4;
/// An epoch of the snapshot that took less is followed by one of twice as many statements; more than four times as long,
/// of half as many.
const SHORT_EPOCH: Duration = Duration::from_secs(30);

/// How far a read has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing was read.
    Start,
    /// Where the changes start is fixed; of the snapshot before them these tablets are read, in order of their ids.
    Snapshot { then: WindowPlanner, done: Arc<[i64]> },
    /// The snapshot (if any) is behind; windows follow.
    Changes(WindowPlanner),
}

impl Progress {
    fn position(&self) -> SourcePosition {
        match self {
            Progress::Start => SourcePosition::START,
            Progress::Snapshot { then, done } => {
                SourcePosition::Snapshot { start_ms: Some(then.next_ms()), done_tablets: done.to_vec() }
            }
            Progress::Changes(planner) => SourcePosition::Changelog { next_ms: planner.next_ms() },
        }
    }
}

/// A finite part of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Rows as of a TSO, or of now, of some tablets; no tablets = all rows.
    Snapshot { as_of: Option<Tso>, tablets: Arc<[i64]> },
    /// The changes of a window.
    Window(Window),
}

/// A piece whose end is fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Armed {
    pub piece: Piece,
    /// Where the read stands after it.
    pub then: Progress,
}

/// What one execution of the node is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    /// The armed piece, or nothing when none is armed.
    Epoch(Option<Piece>),
    /// Everything, from the start, without end (or to the bound).
    All,
}

#[derive(Debug)]
struct State {
    epoch: Option<Epoch>,
    /// After the last committed epoch: where a rolled back epoch is replayed from.
    committed: Progress,
    /// After everything handed out.
    current: Progress,
    /// What the executions of this epoch read.
    armed: Option<Armed>,
    armed_at: Option<Instant>,
    /// Statements of the snapshot that the next epoch reads.
    statements: usize,
    /// The target replaces rows by their key.
    by_key: bool,
    stop: bool,
    /// An instant somebody waits for, in epoch milliseconds.
    wanted_ms: Option<i64>,
    /// When the server's time was last asked for, and what it was.
    asked: Option<(Instant, i64)>,
    /// When a poll last ended without that question.
    looked: Option<Instant>,
    epochs: u64,
    rows: u64,
}

/// Figures of an epoch-wise read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangelogStatus {
    /// Committed epochs.
    pub epochs: u64,
    /// Rows written by them.
    pub rows: u64,
    /// Position after the last committed epoch.
    pub position: SourcePosition,
}

/// Steers a changelog read; shared by all copies of one plan node.
///
/// Without a coordinator each execution of the node is free-running and begins at the start. Once a coordinator has
/// begun an epoch, each execution reads the piece that was armed for it, from the last committed position on.
#[derive(Debug)]
pub struct ChangelogControl {
    state: Mutex<State>,
    changed: Notify,
}

impl Default for ChangelogControl {
    fn default() -> Self {
        let state = State {
            epoch: None,
            committed: Progress::Start,
            current: Progress::Start,
            armed: None,
            armed_at: None,
            statements: FIRST_STATEMENTS,
            by_key: false,
            stop: false,
            wanted_ms: None,
            asked: None,
            looked: None,
            epochs: 0,
            rows: 0,
        };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl ChangelogControl {
    /// Epochs, rows and position of what is committed.
    pub fn status(&self) -> ChangelogStatus {
        let state = self.state.lock();
        ChangelogStatus { epochs: state.epochs, rows: state.rows, position: state.committed.position() }
    }

    /// Asks for everything up to `instant_ms` (epoch milliseconds) as soon as the server can give it, instead of at
    /// the next poll.
    pub fn hurry(&self, instant_ms: i64) {
        {
            let mut state = self.state.lock();
            state.wanted_ms = state.wanted_ms.max(Some(instant_ms));
        }
        self.changed.notify_waiters();
    }

    /// True when every change before `instant_ms` (epoch milliseconds) is committed in the sink.
    pub fn has_committed(&self, instant_ms: i64) -> bool {
        self.status().position.changelog_ms().is_some_and(|next_ms| next_ms >= instant_ms)
    }

    /// Waits for [`Self::has_committed`].
    pub async fn committed_up_to(&self, instant_ms: i64) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.has_committed(instant_ms) {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn work(&self) -> Work {
        let state = self.state.lock();
        match state.epoch {
            Some(_) => Work::Epoch(state.armed.as_ref().map(|armed| armed.piece.clone())),
            None => Work::All,
        }
    }

    pub(super) fn set_current(&self, progress: Progress) {
        self.state.lock().current = progress;
    }

    /// Where the next piece starts.
    pub(super) fn current(&self) -> Progress {
        self.state.lock().current.clone()
    }

    /// A coordinator steers the read.
    pub(super) fn in_epochs(&self) -> bool {
        self.state.lock().epoch.is_some()
    }

    /// Where the read starts is fixed. Nothing was handed out yet, so a rolled back epoch starts there again.
    pub(super) fn started(&self, progress: Progress) {
        let mut state = self.state.lock();
        if state.epoch.is_some() {
            state.committed = progress.clone();
        }
        state.current = progress;
    }

    /// Goes to the position of a checkpoint; `None`: there is none yet.
    pub(super) fn restore(&self, progress: Option<Progress>, by_key: bool) {
        let mut state = self.state.lock();
        state.by_key = by_key;
        if let Some(progress) = progress {
            state.committed = progress.clone();
            state.current = progress;
        }
    }

    /// Rows may be read a second time: the target replaces them by their key.
    pub(super) fn by_key(&self) -> bool {
        self.state.lock().by_key
    }

    /// Statements of the snapshot that the next epoch should read.
    pub(super) fn snapshot_statements(&self) -> usize {
        self.state.lock().statements
    }

    /// There is something to read that need not be waited for.
    pub(super) fn has_backlog(&self) -> bool {
        let state = self.state.lock();
        match &state.committed {
            Progress::Start | Progress::Snapshot { .. } => true,
            Progress::Changes(planner) => has_backlog(&state, planner),
        }
    }

    /// Waits until [`Self::hurry`] asked for more than is committed, or for [`Self::stop`].
    pub(super) async fn wanted(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = self.state.lock();
                let committed_ms = state.committed.position().changelog_ms();
                if state.stop || state.wanted_ms.is_some_and(|wanted| committed_ms.is_none_or(|at| at < wanted)) {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Waits for [`Self::stop`].
    pub(super) async fn stopped(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.state.lock().stop {
                return;
            }
            changed.await;
        }
    }

    /// Position after everything handed out.
    pub fn position(&self) -> SourcePosition {
        self.state.lock().current.position()
    }

    /// Ends an idle wait now, and a running piece of work at its end; no further work is begun.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_waiters();
    }

    pub(super) fn begin_epoch(&self, epoch: Epoch) {
        let mut state = self.state.lock();
        state.epoch = Some(epoch);
        state.current = state.committed.clone();
        state.armed = None;
    }

    pub(super) fn arm(&self, armed: Armed) {
        let mut state = self.state.lock();
        state.armed = Some(armed);
        state.armed_at = Some(Instant::now());
    }

    /// Moves behind the armed piece, and gives where the read stands then.
    pub(super) fn piece_done(&self) -> Option<Progress> {
        let mut state = self.state.lock();
        let Armed { piece, then } = state.armed.take()?;
        if let (Piece::Snapshot { .. }, Some(armed_at)) = (piece, state.armed_at) {
            let took = armed_at.elapsed();
            if took < SHORT_EPOCH {
                state.statements = state.statements.saturating_mul(2);
            } else if took > SHORT_EPOCH * 4 {
                state.statements = (state.statements / 2).max(1);
            }
        }
        state.current = then.clone();
        Some(then)
    }

    pub(super) fn epoch_committed(&self) {
        {
            let mut state = self.state.lock();
            state.committed = state.current.clone();
            state.epochs += 1;
        }
        self.changed.notify_waiters();
    }

    pub(super) fn epoch_aborted(&self) {
        let mut state = self.state.lock();
        state.current = state.committed.clone();
        state.armed = None;
    }

    pub(super) fn finished(&self) -> bool {
        let state = self.state.lock();
        state.stop || matches!(&state.committed, Progress::Changes(planner) if planner.is_done())
    }

    pub(super) fn epoch_written(&self, rows: u64) {
        self.state.lock().rows += rows;
    }

    /// Notes the server's time at a poll.
    pub(super) fn asked(&self, now_ms: i64) {
        self.state.lock().asked = Some((Instant::now(), now_ms));
    }

    /// The server's time at the last poll that asked for it, and the time that passed since.
    pub(super) fn last_asked(&self) -> Option<(i64, Duration)> {
        self.state.lock().asked.map(|(at, server_ms)| (server_ms, at.elapsed()))
    }

    /// Notes a poll that did not ask for the server's time.
    pub(super) fn looked(&self) {
        self.state.lock().looked = Some(Instant::now());
    }

    /// True when the next poll is due for its interval alone: no instant is waited for, and no closed second is left.
    pub(super) fn polls_by_interval(&self, planner: &WindowPlanner) -> bool {
        let state = self.state.lock();
        wanted_ms(&state, planner).is_none() && !has_backlog(&state, planner)
    }

    /// Waits until the next poll is due, or the read is stopped. The first poll is due at once.
    pub(super) async fn poll_due(&self, planner: &WindowPlanner, interval: Duration) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the state is read, so that no notice falls between.
            changed.as_mut().enable();
            let due = {
                let state = self.state.lock();
                if state.stop {
                    return;
                }
                next_poll(&state, planner, interval)
            };
            let Some(due) = due else { return };
            tokio::select! {
                () = tokio::time::sleep_until(due) => return,
                () = changed => {}
            }
        }
    }
}

/// An instant that is waited for and that windows have not reached.
fn wanted_ms(state: &State, planner: &WindowPlanner) -> Option<i64> {
    planner.bound_ms().or(state.wanted_ms).filter(|wanted| *wanted > planner.next_ms())
}

/// True when a window of limited length left closed seconds behind it.
fn has_backlog(state: &State, planner: &WindowPlanner) -> bool {
    state.asked.is_some_and(|(_, server_ms)| planner.has_backlog(server_ms))
}

/// When to poll next; `None` = now.
fn next_poll(state: &State, planner: &WindowPlanner, interval: Duration) -> Option<Instant> {
    let (asked_at, server_ms) = state.asked?;
    if has_backlog(state, planner) {
        return None;
    }
    let due = state.looked.unwrap_or(asked_at).max(asked_at) + interval;
    let Some(wanted) = wanted_ms(state, planner) else { return Some(due) };
    let until_closed = Duration::from_millis(millis_until_closed(wanted, server_ms));
    Some(due.min(asked_at + until_closed.max(SHORTEST_PAUSE)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn polls_follow_the_interval_and_the_first_is_at_once() {
        let control = ChangelogControl::default();
        let planner = WindowPlanner::new(20_000);
        let started = Instant::now();
        control.poll_due(&planner, INTERVAL).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        control.asked(20_500);
        control.poll_due(&planner, INTERVAL).await;
        assert_eq!(started.elapsed(), INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn bound_and_hurry_shorten_the_pause_to_when_the_instant_is_closed() {
        let started = Instant::now();
        let control = ChangelogControl::default();
        let planner = WindowPlanner::new(20_000);
        control.asked(20_500);
        control.hurry(22_000);
        control.poll_due(&planner, INTERVAL).await;
        assert_eq!(started.elapsed(), Duration::from_millis(1_501));
        let control = ChangelogControl::default();
        control.asked(20_500);
        control.poll_due(&planner.with_bound(Some(21_000)), INTERVAL).await;
        assert_eq!(started.elapsed(), Duration::from_millis(1_501 + 501));
    }

    #[tokio::test(start_paused = true)]
    async fn stop_and_hurry_interrupt_an_idle_wait() {
        let control = ChangelogControl::default();
        let planner = WindowPlanner::new(20_000);
        control.asked(20_500);
        let started = Instant::now();
        let idle = control.poll_due(&planner, INTERVAL);
        tokio::pin!(idle);
        assert!(futures::poll!(idle.as_mut()).is_pending());
        control.hurry(20_900);
        idle.await;
        assert!(started.elapsed() < Duration::from_secs(1));
        control.asked(20_600);
        let idle = control.poll_due(&planner, INTERVAL);
        tokio::pin!(idle);
        assert!(futures::poll!(idle.as_mut()).is_pending());
        control.stop();
        assert!(futures::poll!(idle.as_mut()).is_ready());
        assert!(control.finished());
    }

    #[test]
    fn aborted_epoch_is_replayed_from_the_committed_position() {
        let window = |start_ms| Piece::Window(Window { start_ms, end_ms: start_ms + 10_000 });
        let changes = |next_ms| Progress::Changes(WindowPlanner::new(next_ms));
        let control = ChangelogControl::default();
        assert_eq!(control.work(), Work::All);
        control.begin_epoch(Epoch::FIRST);
        assert_eq!(control.work(), Work::Epoch(None));
        let snapshot = Piece::Snapshot { as_of: None, tablets: [].into() };
        control.arm(Armed { piece: snapshot.clone(), then: changes(20_000) });
        assert_eq!(control.work(), Work::Epoch(Some(snapshot)));
        assert!(control.piece_done().is_some());
        control.epoch_committed();
        control.begin_epoch(Epoch(2));
        control.arm(Armed { piece: window(20_000), then: changes(30_000) });
        assert_eq!(control.position(), SourcePosition::Changelog { next_ms: 20_000 }, "not read yet");
        assert!(control.piece_done().is_some());
        assert_eq!(control.position(), SourcePosition::Changelog { next_ms: 30_000 });
        control.epoch_aborted();
        control.begin_epoch(Epoch(3));
        assert_eq!(control.work(), Work::Epoch(None), "an aborted epoch's piece is forgotten");
        assert_eq!(control.current(), Progress::Changes(WindowPlanner::new(20_000)));
        assert_eq!(control.status().position, SourcePosition::Changelog { next_ms: 20_000 });
        control.arm(Armed { piece: window(20_000), then: changes(30_000) });
        control.epoch_committed();
        assert_eq!(control.status().position, SourcePosition::Changelog { next_ms: 20_000 }, "armed is not done");
    }

    #[test]
    fn start_that_was_fixed_outlives_an_aborted_epoch() {
        let control = ChangelogControl::default();
        control.begin_epoch(Epoch::FIRST);
        let fixed = Progress::Snapshot { then: WindowPlanner::new(20_000), done: [].into() };
        control.started(fixed.clone());
        control.epoch_aborted();
        control.begin_epoch(Epoch(2));
        assert_eq!(control.current(), fixed);
        let position = SourcePosition::Snapshot { start_ms: Some(20_000), done_tablets: vec![] };
        assert_eq!(control.position(), position);
    }

    #[tokio::test(start_paused = true)]
    async fn epochs_of_the_snapshot_grow_and_shrink_with_the_time_they_take() {
        let control = ChangelogControl::default();
        control.begin_epoch(Epoch::FIRST);
        let mut statements = vec![control.snapshot_statements()];
        for seconds in [1, 29, 31, 119, 121, 600, 600, 600, 600] {
            let then = Progress::Snapshot { then: WindowPlanner::new(20_000), done: [1].into() };
            control.arm(Armed { piece: Piece::Snapshot { as_of: None, tablets: [1].into() }, then });
            tokio::time::advance(Duration::from_secs(seconds)).await;
            control.piece_done();
            statements.push(control.snapshot_statements());
        }
        assert_eq!(statements, [4, 8, 16, 16, 16, 8, 4, 2, 1, 1]);
    }

    #[tokio::test]
    async fn hurry_is_wanted_until_it_is_committed() {
        let control = ChangelogControl::default();
        control.restore(Some(Progress::Changes(WindowPlanner::new(20_000))), true);
        let waits = || futures::FutureExt::now_or_never(control.wanted()).is_none();
        assert!(waits() && !control.has_backlog() && control.by_key());
        control.hurry(20_000);
        assert!(waits(), "committed already");
        control.hurry(21_000);
        assert!(!waits());
        control.restore(Some(Progress::Changes(WindowPlanner::new(21_000))), true);
        assert!(waits());
        control.asked(23_000);
        assert!(control.has_backlog());
        control.stop();
        assert!(!waits());
    }
}
