//! The table in which a consumer's position is kept, for others to see and for a start without a checkpoint.
//!
//! The position is the first instant that was not handed on, as a DATETIME in the time zone that Doris gives new
//! connections: the Flink connector reads and writes the same. It is published behind the rows, never ahead of them, by
//! one task that always writes the newest value and tries again until it succeeds.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::common::runtime::SpawnedTask;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::client::DorisClient;
use crate::error::{Error, Outlook, Result};
use crate::failpoints;
use crate::options::OptionKey;
use crate::sql::{quote_table, string_literal};
use crate::types::{LocalTime, ServerZone, TableIdent};

/// First and longest pause after a write that failed.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Longest wait for the last value at a clean end.
const FLUSH: Duration = Duration::from_secs(10);

/// Where a position is kept; a trait, so that publishing can be tested with paused time.
#[async_trait]
pub(super) trait OffsetStore: Send + Sync + fmt::Debug {
    /// The consumer's position; `None` when it has none yet.
    async fn read(&self) -> Result<Option<LocalTime>>;
    /// Replaces it.
    async fn write(&self, next: LocalTime) -> Result<()>;
    /// Whose position it is and where it is kept, for error texts.
    fn describe(&self) -> String;
}

/// A row of the offset table, over the MySQL protocol.
#[derive(Debug)]
pub(super) struct OffsetTable {
    client: DorisClient,
    table: TableIdent,
    consumer: String,
}

impl OffsetTable {
    pub fn new(client: DorisClient, table: TableIdent, consumer: String) -> Self {
        Self { client, table, consumer }
    }

    fn error(&self, reason: impl fmt::Display) -> Error {
        Error::Changelog {
            table: self.table.to_string(),
            reason: format!("the position of consumer '{}': {reason}", self.consumer),
        }
    }

    fn read_sql(&self) -> String {
        format!(
            "SELECT `consumer_id`, `offset_timestamp` FROM {} WHERE `consumer_id` = {}",
            quote_table(&self.table),
            string_literal(&self.consumer)
        )
    }

    fn write_sql(&self, next: LocalTime) -> String {
        format!(
            "INSERT INTO {} (`consumer_id`, `offset_timestamp`, `update_time`) VALUES ({}, '{next}', CURRENT_TIMESTAMP(3))",
            quote_table(&self.table),
            string_literal(&self.consumer)
        )
    }
}

/// A DATETIME as the MySQL protocol prints it: a fraction of zeros may follow.
fn parse_stored(text: &str) -> Result<LocalTime, String> {
    let seconds = match text.split_once('.') {
        Some((seconds, fraction)) if fraction.bytes().all(|digit| digit == b'0') => seconds,
        _ => text,
    };
    LocalTime::parse(seconds)
}

#[async_trait]
impl OffsetStore for OffsetTable {
    async fn read(&self) -> Result<Option<LocalTime>> {
        let read = async {
            let mut connection = self.client.connection().await?;
            let output = connection.execute(&self.read_sql()).await?.pop().unwrap_or_default();
            connection.close().await?;
            Ok::<_, Error>(output.rows)
        };
        let rows = read.await.map_err(|error| match error.outlook() {
            Outlook::Passing => error,
            _ => self.error(format!(
                "it cannot be read: {error}; create the table with consumer_id VARCHAR(256) NOT NULL, offset_timestamp \
                 DATETIME NOT NULL, update_time DATETIME(3) NOT NULL, UNIQUE KEY (consumer_id)"
            )),
        })?;
        match rows.as_slice() {
            [] => Ok(None),
            [row] => match row.get(1) {
                Some(Some(text)) => parse_stored(text)
                    .map(Some)
                    .map_err(|reason| self.error(format!("offset_timestamp {reason}; correct or delete the row"))),
                _ => Err(self.error("offset_timestamp is NULL; delete the row or give it a value")),
            },
            several => Err(self.error(format!(
                "{} rows have its id; make consumer_id the UNIQUE KEY of the table and keep one",
                several.len()
            ))),
        }
    }

    fn describe(&self) -> String {
        format!("the position of consumer '{}' in {}", self.consumer, self.table)
    }

    async fn write(&self, next: LocalTime) -> Result<()> {
        let mut connection = self.client.connection().await?;
        let output = connection.execute(&self.write_sql(next)).await?.pop().unwrap_or_default();
        connection.close().await?;
        match output.affected {
            0 => Err(self.error("the INSERT wrote no row")),
            _ => Ok(()),
        }
    }
}

/// Publishes the position of one read.
#[derive(Debug)]
pub(super) struct Offsets {
    store: Arc<dyn OffsetStore>,
    zone: OnceLock<ServerZone>,
    wanted: watch::Sender<Option<LocalTime>>,
    written: watch::Sender<Option<LocalTime>>,
    /// The newest position that waits for the end of a plan.
    held: Mutex<Option<i64>>,
    task: Mutex<Option<SpawnedTask<()>>>,
}

impl fmt::Display for Offsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.store.describe())
    }
}

impl Offsets {
    pub fn new(store: Arc<dyn OffsetStore>) -> Self {
        Self {
            store,
            zone: OnceLock::new(),
            wanted: watch::Sender::new(None),
            written: watch::Sender::new(None),
            held: Mutex::default(),
            task: Mutex::default(),
        }
    }

    /// The kept position in epoch milliseconds, read in `zone`, in which positions are published from then on.
    ///
    /// # Errors
    /// When it cannot be read, or names no single instant: there is no fallback.
    pub async fn start(&self, zone: ServerZone) -> Result<Option<i64>> {
        let zone = self.zone.get_or_init(|| zone);
        let Some(kept) = self.store.read().await? else { return Ok(None) };
        let instant = kept.to_epoch_ms(zone);
        instant.map(Some).map_err(|reason| {
            let option = OptionKey::OffsetTable.as_ref();
            Error::config(
                option,
                format!("{} cannot be used: {reason}; correct or delete its row", self.store.describe()),
            )
        })
    }

    /// Positions are published in `zone`; for a read whose start is known.
    pub fn publish_in(&self, zone: ServerZone) {
        let _ = self.zone.set(zone);
    }

    /// Everything before `next_ms` (epoch milliseconds) was handed on. Returns at once.
    pub fn publish(self: &Arc<Self>, next_ms: i64) {
        let Some(zone) = self.zone.get() else { return };
        // A time that the zone's clock shows twice would be read as another instant: the next one will do.
        let Some(text) = LocalTime::of_epoch_ms(next_ms, zone).filter(|text| text.to_epoch_ms(zone) == Ok(next_ms))
        else {
            tracing::debug!(next_ms, %zone, "position has no text of its own in the server's time zone, not published");
            return;
        };
        self.wanted.send_replace(Some(text));
        let mut task = self.task.lock();
        if task.is_none() {
            let (store, wanted, written) = (Arc::clone(&self.store), self.wanted.subscribe(), self.written.clone());
            *task = Some(SpawnedTask::spawn(write_newest(store, wanted, written)));
        }
    }

    /// Everything before `next_ms` will have been handed on when [`Self::publish_held`] is called.
    pub fn hold(&self, next_ms: i64) {
        *self.held.lock() = Some(next_ms);
    }

    /// Publishes the position that was held last.
    pub fn publish_held(self: &Arc<Self>) {
        let held = self.held.lock().take();
        if let Some(next_ms) = held {
            self.publish(next_ms);
        }
    }

    /// Waits until the newest position is written, for some seconds at most, and ends the task.
    pub async fn flush(&self) {
        let wanted = *self.wanted.borrow();
        if wanted.is_some() && self.task.lock().is_some() {
            let mut written = self.written.subscribe();
            let done = written.wait_for(|written| *written == wanted);
            if tokio::time::timeout(FLUSH, done).await.is_err() {
                tracing::warn!(
                    "the last position was not published within {FLUSH:?}; a later start repeats some changes"
                );
            }
        }
        self.stop();
    }

    /// Ends the task, whatever it is doing.
    pub fn stop(&self) {
        self.task.lock().take();
    }
}

async fn write_newest(
    store: Arc<dyn OffsetStore>,
    mut wanted: watch::Receiver<Option<LocalTime>>,
    written: watch::Sender<Option<LocalTime>>,
) {
    let (first_pause, longest) = PAUSE;
    let mut pause = first_pause;
    loop {
        let newest = *wanted.borrow_and_update();
        if let Some(next) = newest.filter(|next| *written.borrow() != Some(*next)) {
            let write = async {
                failpoints::request(failpoints::OFFSET_PUBLISH)?;
                store.write(next).await?;
                failpoints::answer(failpoints::OFFSET_PUBLISHED)
            };
            match write.await {
                Ok(()) => {
                    written.send_replace(Some(next));
                    pause = first_pause;
                }
                Err(error) => {
                    tracing::warn!(%error, position = %next, "the position could not be published, trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(longest);
                    continue;
                }
            }
        }
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Kept {
        row: Mutex<Option<LocalTime>>,
        failures: AtomicUsize,
        writes: AtomicUsize,
    }

    #[async_trait]
    impl OffsetStore for Kept {
        async fn read(&self) -> Result<Option<LocalTime>> {
            Ok(*self.row.lock())
        }

        async fn write(&self, next: LocalTime) -> Result<()> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            if self.failures.load(Ordering::Relaxed) > 0 {
                self.failures.fetch_sub(1, Ordering::Relaxed);
                return Err(Error::Checkpoint { reason: "told to fail".into() });
            }
            *self.row.lock() = Some(next);
            Ok(())
        }

        fn describe(&self) -> String {
            "the position".into()
        }
    }

    fn offsets(kept: &Arc<Kept>) -> Arc<Offsets> {
        Arc::new(Offsets::new(Arc::clone(kept) as Arc<dyn OffsetStore>))
    }

    #[tokio::test(start_paused = true)]
    async fn newest_position_is_written_until_it_succeeds_and_flushed_at_the_end() {
        let kept = Arc::new(Kept { failures: AtomicUsize::new(3), ..Kept::default() });
        let offsets = offsets(&kept);
        assert_eq!(offsets.start("Asia/Shanghai".parse().unwrap()).await.unwrap(), None);
        offsets.publish(1_767_225_610_000);
        offsets.publish(1_767_225_620_000);
        offsets.flush().await;
        assert_eq!(kept.row.lock().unwrap().to_string(), "2026-01-01 08:00:20");
        assert_eq!(kept.writes.load(Ordering::Relaxed), 4, "the older value was never needed");
        assert_eq!(offsets.start(ServerZone::UTC).await.unwrap(), Some(1_767_225_620_000), "the zone is the first one");
    }

    #[tokio::test(start_paused = true)]
    async fn flush_gives_up_after_a_while() {
        let kept = Arc::new(Kept { failures: AtomicUsize::new(usize::MAX), ..Kept::default() });
        let offsets = offsets(&kept);
        offsets.start(ServerZone::UTC).await.unwrap();
        let begun = tokio::time::Instant::now();
        offsets.publish(1_767_225_610_000);
        offsets.flush().await;
        assert_eq!(begun.elapsed(), FLUSH);
        assert!(offsets.task.lock().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn hour_that_comes_twice_is_neither_written_nor_guessed_from() {
        let kept = Arc::new(Kept::default());
        let offsets = offsets(&kept);
        offsets.start("America/New_York".parse().unwrap()).await.unwrap();
        // 05:30 UTC is the first half past one of that night.
        offsets.publish(1_762_061_400_000);
        assert!(offsets.task.lock().is_none());
        *kept.row.lock() = Some(LocalTime::parse("2025-11-02 01:30:00").unwrap());
        let error = offsets.start(ServerZone::UTC).await.unwrap_err().to_string();
        for part in ["source.changelog.offset-table", "comes twice", "correct or delete its row"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn stored_text_is_whole_seconds() {
        for (text, right) in [
            ("2026-01-01 08:00:20", true),
            ("2026-01-01 08:00:20.0", true),
            ("2026-01-01 08:00:20.000000", true),
            ("2026-01-01 08:00:20.5", false),
            ("yesterday", false),
        ] {
            assert_eq!(parse_stored(text).is_ok(), right, "{text}");
        }
    }

    #[test]
    fn statements_quote_names_and_values() {
        let options = crate::options::ConnectionOptions::new("fe:8030", "root", crate::options::Secret::default());
        let client = DorisClient::try_new(Arc::new(options)).unwrap();
        let table = OffsetTable::new(client, TableIdent::new("d`b", "o"), "it's".into());
        assert_eq!(
            table.read_sql(),
            "SELECT `consumer_id`, `offset_timestamp` FROM `d``b`.`o` WHERE `consumer_id` = 'it''s'"
        );
        let next = LocalTime::parse("2026-01-01 08:00:20").unwrap();
        assert!(table.write_sql(next).contains("VALUES ('it''s', '2026-01-01 08:00:20', CURRENT_TIMESTAMP(3))"));
    }
}
