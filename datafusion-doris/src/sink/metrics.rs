//! What a sink counts: in EXPLAIN ANALYZE, and for the program's recorder of the `metrics` facade.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use datafusion::physical_plan::metrics::{
    Count, CustomMetricValue, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricValue, Time,
};
use parking_lot::Mutex;

use crate::checkpoint::Committable;
use crate::protocol::StreamLoadResponse;

/// Loads that a histogram looks at for its quantiles, as in the Flink connector.
const WINDOW: usize = 100;
/// Characters kept of the reason for a refused row.
const REASON_LENGTH: usize = 300;

/// One metric of a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkMetric {
    /// In EXPLAIN ANALYZE.
    pub name: &'static str,
    /// For the recorder of the `metrics` facade, with the label `table`.
    pub facade: &'static str,
    /// In the Flink connector; empty where it has none.
    pub guide: &'static str,
    /// What it tells.
    pub meaning: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Histogram,
}

macro_rules! metrics_of_a_sink {
    ($($variant:ident = $name:literal, $facade:literal, $guide:literal, $kind:ident, $meaning:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Id { $($variant,)* }

        /// Every metric that is told of loads, in the order of the documentation.
        pub const SINK_METRICS: &[SinkMetric] = &[
            $(SinkMetric { name: $name, facade: $facade, guide: $guide, kind: Kind::$kind, meaning: $meaning },)*
        ];
    };
}

metrics_of_a_sink! {
    LoadBytes = "load_bytes", "doris_sink_load_bytes", "totalFlushLoadBytes", Counter, "Bytes that Doris read of loads.";
    TotalRows = "total_rows", "doris_sink_total_rows", "flushTotalNumberRows", Counter, "Rows that Doris read.";
    LoadedRows = "loaded_rows", "doris_sink_loaded_rows", "totalFlushLoadedRows", Counter, "Rows that Doris took.";
    FilteredRows = "filtered_rows", "doris_sink_filtered_rows", "totalFlushFilteredRows", Counter, "Rows that Doris refused for their values.";
    UncountedRows = "uncounted_rows", "doris_sink_uncounted_rows", "", Counter, "Rows sent by loads that Doris has, of which it may have refused some: the answer that counts them was lost.";
    MissingRows = "missing_rows", "doris_sink_missing_rows", "", Counter, "Staged rows that are neither in the table nor refused: Doris has not read all of their objects.";
    UnselectedRows = "unselected_rows", "doris_sink_unselected_rows", "totalFlushUnselectedRows", Counter, "Rows that `sink.properties.where` left out.";
    LoadsSucceeded = "loads_succeeded", "doris_sink_loads_succeeded", "totalFlushSucceededNumber", Counter, "Loads that ended well.";
    LoadsFailed = "loads_failed", "doris_sink_loads_failed", "totalFlushFailedNumber", Counter, "Attempts to load that failed, those included that were sent again.";
    LoadTime = "load_time", "doris_sink_load_seconds", "loadTimeMs, totalFlushTimeMs", Histogram, "Time of a load in Doris, from its beginning to its answer.";
    BeginTxnTime = "begin_txn_time", "doris_sink_begin_txn_seconds", "beginTxnTimeMs", Histogram, "Time to begin the transaction of a load.";
    PutDataTime = "put_data_time", "doris_sink_stream_load_put_seconds", "putDataTimeMs", Histogram, "Time to get the plan of a load (`StreamLoadPutTimeMs`).";
    ReadDataTime = "read_data_time", "doris_sink_read_data_seconds", "readDataTimeMs", Histogram, "Time to read the body of a load.";
    WriteDataTime = "write_data_time", "doris_sink_write_data_seconds", "writeDataTimeMs", Histogram, "Time to write the rows of a load.";
    CommitAndPublishTime = "commit_and_publish_time", "doris_sink_commit_and_publish_seconds", "commitAndPublishTimeMs", Histogram, "Time of the commit that is a part of a load: of the first phase, if there are two.";
}

impl Id {
    fn of(self) -> &'static SinkMetric {
        // The macro lists both in the same order.
        &SINK_METRICS[self as usize]
    }
}

/// Tells the recorder of the `metrics` facade, if there is one, what the metrics of sinks mean. To be called once, after
/// the recorder was installed; they are recorded without it too.
pub fn describe_sink_metrics() {
    for metric in SINK_METRICS {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.facade, metric.meaning),
            Kind::Histogram => metrics::describe_histogram!(metric.facade, metrics::Unit::Seconds, metric.meaning),
        }
    }
}

/// The metrics as a Markdown table, for the documentation.
pub fn sink_metrics_table() -> String {
    let mut out =
        String::from("| EXPLAIN ANALYZE | `metrics` facade | Flink connector | Meaning |\n| --- | --- | --- | --- |\n");
    for SinkMetric { name, facade, guide, meaning, kind } in SINK_METRICS {
        let kind = match kind {
            Kind::Counter => "",
            Kind::Histogram => " (histogram)",
        };
        let _ = writeln!(out, "| `{name}`{kind} | `{facade}` | {guide} | {meaning} |");
    }
    out
}

/// Rows that Doris refused while it took the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilteredRows {
    /// How many.
    pub rows: u64,
    /// Why the first of them was refused, when Doris tells.
    pub first_reason: Option<String>,
}

impl FilteredRows {
    /// The reason is cut where it is long: it shows the row.
    pub(super) fn of(rows: u64, first_reason: Option<&str>) -> Self {
        let short = |reason: &str| reason.chars().take(REASON_LENGTH).collect();
        Self { rows, first_reason: first_reason.map(short) }
    }

    /// Those of several loads, with the first reason that is known.
    pub(super) fn sum<'a>(of_loads: impl IntoIterator<Item = &'a FilteredRows>) -> Option<Self> {
        of_loads.into_iter().fold(None, |all: Option<Self>, one| {
            let Some(all) = all else { return Some(one.clone()) };
            let first_reason = all.first_reason.or_else(|| one.first_reason.clone());
            Some(Self { rows: all.rows.saturating_add(one.rows), first_reason })
        })
    }
}

impl fmt::Display for FilteredRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let are = if self.rows == 1 { "row was" } else { "rows were" };
        write!(f, "{} {are} refused by Doris", self.rows)?;
        match &self.first_reason {
            Some(reason) => write!(f, ", first: {reason}"),
            None => Ok(()),
        }
    }
}

/// Rows of loads that Doris has, as the state of their labels tells, and whose answer was lost: where it may refuse rows, or
/// leave some out, nothing tells how many of them are in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncountedRows {
    /// Rows that were sent.
    pub rows: u64,
    /// Loads that sent them.
    pub loads: u64,
    /// Label of the first of these loads.
    pub label: String,
    /// Its database.
    pub database: String,
    /// Its rows were staged (TVF mode): it is an INSERT.
    pub staged: bool,
}

impl UncountedRows {
    pub(super) fn of(load: &Committable, rows: u64) -> Self {
        let staged = load.staged.is_some();
        Self { rows, loads: 1, label: load.label.clone(), database: load.db.clone(), staged }
    }

    /// Those of several loads.
    pub(super) fn sum<'a>(of_loads: impl IntoIterator<Item = &'a UncountedRows>) -> Option<Self> {
        of_loads.into_iter().fold(None, |all: Option<Self>, one| {
            let Some(all) = all else { return Some(one.clone()) };
            Some(Self { rows: all.rows.saturating_add(one.rows), loads: all.loads.saturating_add(one.loads), ..all })
        })
    }
}

impl fmt::Display for UncountedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, loads, label, database, staged } = self;
        let (which, whose) = match loads {
            1 => (format!("load {label}"), "its"),
            _ => (format!("{loads} loads, the first of them {label},"), "their"),
        };
        let records = match staged {
            true => "or see SHOW LOAD",
            false => "or where BEs keep records (enable_stream_load_record) see SHOW STREAM LOAD",
        };
        write!(
            f,
            "the answer to {which} was lost: Doris has {whose} rows, but nothing tells how many of the {rows} that were \
             sent it refused ('sink.properties.max_filter_ratio') or left out ('sink.properties.where'); count them in \
             the table, {records} FROM `{database}` WHERE Label = '{label}'"
        )
    }
}

/// Staged rows (TVF mode) that are neither in the table nor refused: an object was removed or replaced before Doris read it.
/// The objects of such a load are not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRows {
    /// How many.
    pub rows: u64,
    /// Loads that lack them.
    pub loads: u64,
    /// Label of the first of these loads.
    pub label: String,
    /// URIs of its objects, the first ones where there are many.
    pub objects: String,
}

impl MissingRows {
    fn add(&mut self, other: &Self) {
        self.rows = self.rows.saturating_add(other.rows);
        self.loads = self.loads.saturating_add(other.loads);
    }
}

impl fmt::Display for MissingRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, loads, label, objects } = self;
        let which = match loads {
            1 => format!("load {label}"),
            _ => format!("{loads} loads, the first of them {label},"),
        };
        write!(
            f,
            "staged rows of {which} are neither in the table nor refused, {rows} in all: Doris has not read all of {objects}, \
             which are left as they are; compare the table with them"
        )
    }
}

/// What the loads of one sink count. Handles are made once: each registers an entry, and epochs go on for months.
#[derive(Debug)]
pub(super) struct SinkMetrics {
    pub(super) set: ExecutionPlanMetricsSet,
    pub(super) rows: Count,
    pub(super) bytes: Count,
    pub(super) loads: Count,
    /// Bytes in buffers of the batch mode.
    pub(super) buffered: Gauge,
    pub(super) commit_time: Time,
    table: String,
    counters: Vec<(Id, Count)>,
    histograms: Vec<(Id, Arc<Histogram>)>,
    filtered: Mutex<Option<FilteredRows>>,
    uncounted: Mutex<Option<UncountedRows>>,
    missing: Mutex<Option<MissingRows>>,
}

impl SinkMetrics {
    pub(super) fn new(table: impl ToString) -> Self {
        let set = ExecutionPlanMetricsSet::new();
        let counter = |id: Id| (id, MetricBuilder::new(&set).global_counter(id.of().name));
        let histogram = |id: Id| {
            let histogram = Arc::new(Histogram::default());
            let value = Arc::clone(&histogram) as Arc<dyn CustomMetricValue>;
            MetricBuilder::new(&set).build(MetricValue::Custom { name: id.of().name.into(), value });
            (id, histogram)
        };
        Self {
            rows: MetricBuilder::new(&set).global_counter("rows_sent"),
            bytes: MetricBuilder::new(&set).global_counter("bytes_sent"),
            loads: MetricBuilder::new(&set).global_counter("loads"),
            buffered: MetricBuilder::new(&set).gauge("buffered_bytes", 0),
            commit_time: MetricBuilder::new(&set).subset_time("commit_time", 0),
            table: table.to_string(),
            counters: [
                Id::LoadBytes,
                Id::TotalRows,
                Id::LoadedRows,
                Id::FilteredRows,
                Id::UncountedRows,
                Id::MissingRows,
                Id::UnselectedRows,
                Id::LoadsSucceeded,
                Id::LoadsFailed,
            ]
            .map(counter)
            .into(),
            histograms: [
                Id::LoadTime,
                Id::BeginTxnTime,
                Id::PutDataTime,
                Id::ReadDataTime,
                Id::WriteDataTime,
                Id::CommitAndPublishTime,
            ]
            .map(histogram)
            .into(),
            filtered: Mutex::default(),
            uncounted: Mutex::default(),
            missing: Mutex::default(),
            set,
        }
    }

    /// A load ended well without an answer, and all of its `rows` are in it.
    pub(super) fn resolved(&self, rows: u64) {
        self.count(Id::LoadsSucceeded, 1);
        self.count(Id::LoadedRows, rows);
    }

    /// A load ended well without an answer, and may have fewer rows than were sent.
    pub(super) fn resolved_uncounted(&self, uncounted: &UncountedRows) {
        self.count(Id::LoadsSucceeded, 1);
        self.count(Id::UncountedRows, uncounted.rows);
        let mut all = self.uncounted.lock();
        if all.is_none() {
            self.note("uncounted_load", &uncounted.label);
        }
        *all = UncountedRows::sum(all.iter().chain([uncounted]));
    }

    /// All that [`Self::resolved_uncounted`] was told.
    pub(super) fn all_uncounted(&self) -> Option<UncountedRows> {
        self.uncounted.lock().clone()
    }

    /// Doris has not read all rows of a load that ended well.
    pub(super) fn missing(&self, missing: &MissingRows) {
        self.count(Id::MissingRows, missing.rows);
        let mut all = self.missing.lock();
        match all.as_mut() {
            Some(all) => all.add(missing),
            None => {
                self.note("missing_load", &missing.label);
                *all = Some(missing.clone());
            }
        }
    }

    /// All that [`Self::missing`] was told.
    pub(super) fn all_missing(&self) -> Option<MissingRows> {
        self.missing.lock().clone()
    }

    /// A load ended well, with this answer.
    pub(super) fn succeeded(&self, response: &StreamLoadResponse) {
        self.count(Id::LoadsSucceeded, 1);
        self.count(Id::LoadBytes, response.load_bytes);
        self.count(Id::TotalRows, response.total_rows);
        self.count(Id::LoadedRows, response.loaded_rows);
        self.count(Id::FilteredRows, response.filtered_rows);
        self.count(Id::UncountedRows, 0);
        self.count(Id::MissingRows, 0);
        self.count(Id::UnselectedRows, response.unselected_rows);
        let times = &response.times_ms;
        for (id, ms) in [
            (Id::LoadTime, Some(response.load_time_ms)),
            (Id::BeginTxnTime, times.begin_txn),
            (Id::PutDataTime, times.stream_load_put),
            (Id::ReadDataTime, times.read_data),
            (Id::WriteDataTime, times.write_data),
            (Id::CommitAndPublishTime, times.commit_and_publish),
        ] {
            if let Some(ms) = ms {
                self.time(id, Duration::from_millis(ms));
            }
        }
    }

    /// An attempt to load failed.
    pub(super) fn failed(&self) {
        self.count(Id::LoadsFailed, 1);
    }

    /// Counts and tells the rows of a load that Doris refused; `None` when there are none.
    pub(super) fn refused(
        &self,
        table: &dyn fmt::Display,
        label: &str,
        rows: u64,
        first_reason: Option<&str>,
    ) -> Option<FilteredRows> {
        let refused = (rows > 0).then(|| FilteredRows::of(rows, first_reason));
        if let Some(FilteredRows { rows, first_reason }) = &refused {
            tracing::warn!(%table, label, filtered_rows = rows, first_reason, "Doris refused rows of a load");
        }
        self.filtered(refused.as_ref());
        refused
    }

    /// Rows of a load were refused while the others were taken, or none.
    fn filtered(&self, refused: Option<&FilteredRows>) {
        let Some(refused) = refused else { return };
        let mut all = self.filtered.lock();
        let untold = all.as_ref().is_none_or(|all| all.first_reason.is_none());
        if untold && let Some(reason) = &refused.first_reason {
            self.note("first_filtered_row", reason);
        }
        *all = FilteredRows::sum(all.iter().chain([refused]));
    }

    /// All that [`Self::filtered`] was told.
    pub(super) fn all_filtered(&self) -> Option<FilteredRows> {
        self.filtered.lock().clone()
    }

    /// Shows a text among the metrics.
    fn note(&self, name: &'static str, text: &str) {
        let value = Arc::new(Note(Mutex::new(text.to_string()))) as Arc<dyn CustomMetricValue>;
        MetricBuilder::new(&self.set).build(MetricValue::Custom { name: name.into(), value });
    }

    fn count(&self, id: Id, by: u64) {
        if let Some((_, count)) = self.counters.iter().find(|(known, _)| *known == id) {
            count.add(usize::try_from(by).unwrap_or(usize::MAX));
        }
        metrics::counter!(id.of().facade, "table" => self.table.clone()).increment(by);
    }

    fn time(&self, id: Id, time: Duration) {
        if let Some((_, histogram)) = self.histograms.iter().find(|(known, _)| *known == id) {
            histogram.record(time);
        }
        metrics::histogram!(id.of().facade, "table" => self.table.clone()).record(time.as_secs_f64());
    }
}

/// Times of loads: all of them in count, sum, least and greatest, the latest [`WINDOW`] in the quantiles.
#[derive(Debug, Default)]
struct Histogram(Mutex<Times>);

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Times {
    count: u64,
    sum: Duration,
    min: Duration,
    max: Duration,
    latest: VecDeque<Duration>,
}

impl Times {
    fn add(&mut self, other: &Times) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        for time in &other.latest {
            if self.latest.len() == WINDOW {
                self.latest.pop_front();
            }
            self.latest.push_back(*time);
        }
    }

    /// The least of the latest times that this share of them, in percent, does not exceed.
    fn quantile(&self, percent: usize) -> Duration {
        let mut sorted: Vec<Duration> = self.latest.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}

impl Histogram {
    fn record(&self, time: Duration) {
        let one = Times { count: 1, sum: time, min: time, max: time, latest: VecDeque::from([time]) };
        self.0.lock().add(&one);
    }

    fn times(&self) -> Times {
        self.0.lock().clone()
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.times();
        let [p50, p95] = [50, 95].map(|percent| times.quantile(percent));
        let Times { count, sum, min, max, .. } = times;
        write!(f, "{{count={count} sum={sum:?} min={min:?} max={max:?} p50={p50:?} p95={p95:?}}}")
    }
}

impl CustomMetricValue for Histogram {
    fn new_empty(&self) -> Arc<dyn CustomMetricValue> {
        Arc::new(Histogram::default())
    }

    fn aggregate(&self, other: Arc<dyn CustomMetricValue>) {
        if let Some(other) = other.as_any().downcast_ref::<Histogram>() {
            // Copied first: both locks at once could wait for each other.
            let times = other.times();
            self.0.lock().add(&times);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_usize(&self) -> usize {
        usize::try_from(self.0.lock().sum.as_millis()).unwrap_or(usize::MAX)
    }

    fn is_eq(&self, other: &Arc<dyn CustomMetricValue>) -> bool {
        other.as_any().downcast_ref::<Histogram>().is_some_and(|other| self.times() == other.times())
    }
}

/// A text about the first of something, such as why the first row was refused. Of several, the first that is known stays.
#[derive(Debug)]
struct Note(Mutex<String>);

impl Note {
    fn text(&self) -> String {
        self.0.lock().clone()
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl CustomMetricValue for Note {
    fn new_empty(&self) -> Arc<dyn CustomMetricValue> {
        Arc::new(Note(Mutex::default()))
    }

    fn aggregate(&self, other: Arc<dyn CustomMetricValue>) {
        if let Some(other) = other.as_any().downcast_ref::<Note>().map(Note::text) {
            let mut text = self.0.lock();
            if text.is_empty() {
                *text = other;
            }
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_eq(&self, other: &Arc<dyn CustomMetricValue>) -> bool {
        other.as_any().downcast_ref::<Note>().is_some_and(|other| self.text() == other.text())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    const DOCS: &str = include_str!("../../../docs/metrics.md");

    #[test]
    fn the_page_about_metrics_shows_this_table() {
        let table = sink_metrics_table();
        assert!(DOCS.contains(&table), "docs/metrics.md is stale, it must hold:\n{table}");
    }

    #[test]
    fn histograms_keep_all_loads_in_their_sums_and_the_latest_in_their_quantiles() {
        let histogram = Histogram::default();
        assert_eq!(histogram.to_string(), "{count=0 sum=0ns min=0ns max=0ns p50=0ns p95=0ns}");
        for ms in 1..=200 {
            histogram.record(Duration::from_millis(ms));
        }
        // The latest hundred are 101 to 200.
        assert_eq!(histogram.to_string(), "{count=200 sum=20.1s min=1ms max=200ms p50=150ms p95=195ms}");
        let other: Arc<dyn CustomMetricValue> = Arc::new(Histogram::default());
        other.aggregate(histogram.new_empty());
        let one = Arc::new(Histogram::default());
        one.record(Duration::from_millis(7));
        other.aggregate(one);
        assert_eq!(other.to_string(), "{count=1 sum=7ms min=7ms max=7ms p50=7ms p95=7ms}");
        assert_eq!(other.as_usize(), 7);
    }

    #[test]
    fn the_first_reason_of_refused_rows_is_kept_and_bounded() {
        let metrics = SinkMetrics::new("db.t");
        assert_eq!(metrics.all_filtered(), None);
        metrics.filtered(None);
        metrics.filtered(Some(&FilteredRows::of(1, None)));
        metrics.filtered(Some(&FilteredRows::of(2, Some(&"x".repeat(1000)))));
        metrics.filtered(Some(&FilteredRows::of(3, Some("later"))));
        let filtered = metrics.all_filtered().unwrap();
        assert_eq!((filtered.rows, filtered.first_reason.map(|reason| reason.len())), (6, Some(REASON_LENGTH)));
        let shown = metrics.set.clone_inner().to_string();
        assert!(shown.contains("first_filtered_row=xxx") && !shown.contains("later"), "{shown}");
    }

    #[test]
    fn every_metric_has_a_handle_and_a_name_of_its_own() {
        let metrics = SinkMetrics::new("db.t");
        let known = metrics.counters.iter().map(|(id, _)| *id).chain(metrics.histograms.iter().map(|(id, _)| *id));
        let mut names: Vec<&str> = known.map(|id| id.of().name).collect();
        assert_eq!(names.len(), SINK_METRICS.len());
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SINK_METRICS.len());
    }
}
