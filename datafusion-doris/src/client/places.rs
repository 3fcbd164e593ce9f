//! How many statements of scans run at once.
//!
//! A statement keeps its place until its rows are read, so a plan that merges more streams than there are places (a merge
//! of sorted parts, say) would wait for ever: no stream gives its second batch before the last one has given its first.
//! Places beyond the usual ones are for that case alone: they are given while each usual one is kept by a statement whose
//! reader asks for no rows. A statement that waits for Doris keeps others waiting, however long it takes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::DorisClient;
use crate::error::{Error, Result, Retry};

/// A reader that asked for nothing for so long waits for something else.
const IDLE: Duration = Duration::from_millis(500);

/// The places of one client.
#[derive(Debug)]
pub(super) struct Places {
    usual: usize,
    beyond: usize,
    state: Mutex<State>,
    /// A place is free, or its holder's reader has turned away.
    changed: Notify,
    /// First come, first served.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    usual: HashMap<u64, Holder>,
    beyond: HashMap<u64, Holder>,
}

/// Since when the reader asks for nothing; `None`: it waits for rows.
type Holder = Option<Instant>;

/// Since when nobody waits for rows; `None`: somebody does.
fn idle_since<'a>(holders: impl Iterator<Item = &'a Holder>) -> Option<Instant> {
    holders.copied().reduce(|a, b| Some(a?.max(b?))).flatten()
}

/// What somebody who wants a place gets.
enum Answer {
    Place {
        number: u64,
        usual: bool,
    },
    /// Asks again at this time, or when something changes.
    Later(Option<Instant>),
    /// All that is open waits for its readers.
    Stuck,
}

impl Places {
    pub fn new(usual: usize, beyond: usize) -> Self {
        let (changed, turn) = (Notify::new(), tokio::sync::Mutex::default());
        Self { usual: usual.max(1), beyond, state: Mutex::default(), changed, turn }
    }

    fn ask(&self, now: Instant, patience: Duration) -> Answer {
        let mut state = self.state.lock();
        let State { next, usual, beyond } = &mut *state;
        let is_usual = usual.len() < self.usual;
        if !is_usual {
            let Some(idle) = idle_since(usual.values()) else { return Answer::Later(None) };
            if now < idle + IDLE {
                return Answer::Later(Some(idle + IDLE));
            }
            if beyond.len() >= self.beyond {
                let Some(idle) = idle_since(usual.values().chain(beyond.values())) else { return Answer::Later(None) };
                return if now < idle + patience { Answer::Later(Some(idle + patience)) } else { Answer::Stuck };
            }
        }
        let number = *next;
        *next += 1;
        if is_usual { usual } else { beyond }.insert(number, None);
        Answer::Place { number, usual: is_usual }
    }

    /// A place; `None` when all are kept for `patience` by statements whose readers ask for nothing.
    async fn take(self: &Arc<Self>, patience: Duration) -> Option<Place> {
        let _turn = self.turn.lock().await;
        loop {
            let changed = self.changed.notified();
            match self.ask(Instant::now(), patience) {
                Answer::Place { number, usual } => {
                    return Some(Place { places: Arc::clone(self), number, usual, waits: true });
                }
                Answer::Stuck => return None,
                Answer::Later(None) => changed.await,
                Answer::Later(Some(at)) => {
                    let _ = tokio::time::timeout_at(at, changed).await;
                }
            }
        }
    }
}

/// A statement's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    usual: bool,
    waits: bool,
}

impl Place {
    /// Notes whether the reader waits for rows, or has got some and not asked for more.
    pub fn waits(&mut self, waits: bool) {
        if self.waits == waits {
            return;
        }
        self.waits = waits;
        let mut state = self.places.state.lock();
        let holders = if self.usual { &mut state.usual } else { &mut state.beyond };
        holders.insert(self.number, (!waits).then(Instant::now));
        drop(state);
        if !waits {
            self.places.changed.notify_one();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state.lock();
        let holders = if self.usual { &mut state.usual } else { &mut state.beyond };
        holders.remove(&self.number);
        drop(state);
        self.places.changed.notify_one();
    }
}

impl DorisClient {
    /// A place among the statements that run at once: `source.max-connections`, and `source.overflow-connections` more
    /// while all of those wait for their readers. It waits for as long as one of them waits for Doris.
    ///
    /// # Errors
    /// [`Error::Transport`] that names the options, when every place is kept for the connect timeout by a statement whose
    /// rows nobody takes: they wait for each other, as far as can be told.
    pub(crate) async fn statement_place(&self) -> Result<Place> {
        let options = self.options();
        let place = self.inner.places.take(options.connect_timeout).await;
        place.ok_or_else(|| Error::Transport {
            host: options.fenodes.join(","),
            operation: format!(
                "waiting for a place among the {} statements that run at once (raise 'source.max-connections' or \
                 'source.overflow-connections', or lower datafusion.execution.target_partitions)",
                options.max_connections + options.overflow_connections
            ),
            retry: Retry::SameLabel,
            source: "all of them have rows that nobody takes".into(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use futures::FutureExt;
    use futures::poll;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn statements_that_wait_for_the_server_keep_others_waiting() {
        let places = Arc::new(Places::new(2, 2));
        let (first, mut second) = (places.take(PATIENCE).await.unwrap(), places.take(PATIENCE).await.unwrap());
        second.waits(false);
        let mut third = Box::pin(places.take(PATIENCE));
        assert!(poll!(&mut third).is_pending());
        tokio::time::advance(Duration::from_secs(86_400)).await;
        assert!(poll!(&mut third).is_pending(), "the first one waits for the server");
        drop(first);
        assert!(third.await.unwrap().usual);
    }

    #[tokio::test(start_paused = true)]
    async fn places_beyond_are_given_once_all_readers_turned_away() {
        let places = Arc::new(Places::new(2, 1));
        let mut held = vec![places.take(PATIENCE).await.unwrap(), places.take(PATIENCE).await.unwrap()];
        held.iter_mut().for_each(|place| place.waits(false));
        let begin = Instant::now();
        let mut beyond = places.take(PATIENCE).await.unwrap();
        assert!(!beyond.usual);
        assert_eq!(begin.elapsed(), IDLE);
        // It waits for rows: another one waits with it.
        let mut fourth = Box::pin(places.take(PATIENCE));
        assert!(poll!(&mut fourth).is_pending());
        tokio::time::advance(PATIENCE * 2).await;
        assert!(poll!(&mut fourth).is_pending());
        beyond.waits(false);
        let begin = Instant::now();
        assert!(fourth.await.is_none(), "all of them wait for each other");
        assert_eq!(begin.elapsed(), PATIENCE);
        // A reader that goes on makes the next one wait again.
        held[0].waits(true);
        let mut fifth = Box::pin(places.take(PATIENCE));
        assert!(poll!(&mut fifth).is_pending());
        drop(held.pop());
        assert!(fifth.await.unwrap().usual);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_waiting_keeps_nobody_from_a_place() {
        let places = Arc::new(Places::new(1, 0));
        let held = places.take(PATIENCE).await.unwrap();
        let mut gone = Box::pin(places.take(PATIENCE));
        let mut stays = Box::pin(places.take(PATIENCE));
        assert!(poll!(&mut gone).is_pending() && poll!(&mut stays).is_pending());
        drop(held);
        drop(gone);
        assert!(stays.now_or_never().unwrap().is_some());
    }
}
