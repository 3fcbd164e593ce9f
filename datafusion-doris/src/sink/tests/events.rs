//! What a sink writes to the log.

use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;

/// Events of this crate, as `LEVEL name=value …`.
#[derive(Debug, Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("datafusion_doris")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn each_load_is_one_event_and_refused_rows_are_a_warning() {
    let events = Events::default();
    // With only one dispatcher, an event that a test on another thread meets first would be off for this one as well.
    let _second = tracing::Dispatch::new(Events::default());
    let _events = tracing::subscriber::set_default(events.clone());
    let answer = json!({
        "TxnId": 4711, "Label": "l", "TwoPhaseCommit": "true", "Status": "Success", "Message": "OK",
        "NumberTotalRows": 3, "NumberLoadedRows": 2, "NumberFilteredRows": 1, "NumberUnselectedRows": 0,
        "LoadBytes": 99, "LoadTimeMs": 12, "BeginTxnTimeMs": 1, "StreamLoadPutTimeMs": 2, "ReadDataTimeMs": 3,
        "WriteDataTimeMs": 4, "CommitAndPublishTimeMs": 0, "FirstErrorMsg": "Reason: too long",
    });
    let be = Server::start([Reply::ok(answer.to_string()), committed()]).await;
    let fe = Server::start([to(&be), to(&be)]).await;
    let sink = sink(&fe, SinkOptions::default());
    let report = sink.write(data(vec![batch(&[1, 2, 3])])).await.unwrap();
    assert_eq!((report.rows, &report.filtered), (2, &sink.filtered()));
    let lines = events.0.lock().clone();
    let [info] = lines.iter().filter(|line| line.starts_with("INFO")).collect::<Vec<_>>()[..] else {
        panic!("{lines:#?}")
    };
    for part in [
        "table=db.t",
        "label=\"datafusion_doris_db_t_",
        "txn_id=4711",
        "kind=TwoPhase",
        "total_rows=3",
        "loaded_rows=2",
        "filtered_rows=1",
        "unselected_rows=0",
        "load_bytes=99",
        "load_time_ms=12",
        "begin_txn_time_ms=1",
        "put_data_time_ms=2",
        "read_data_time_ms=3",
        "write_data_time_ms=4",
        "commit_and_publish_time_ms=0",
    ] {
        assert!(info.contains(part), "no {part} in {info}");
    }
    let [warning] = lines.iter().filter(|line| line.starts_with("WARN")).collect::<Vec<_>>()[..] else {
        panic!("{lines:#?}")
    };
    assert!(warning.contains("filtered_rows=1") && warning.contains("Reason: too long"), "{warning}");
    let filtered = sink.filtered().unwrap();
    assert_eq!(filtered.to_string(), "1 row was refused by Doris, first: Reason: too long");
}

#[tokio::test]
async fn rows_that_nobody_counted_are_told_with_the_label() {
    for (property, counted) in [
        (None, true),
        (Some(("max_filter_ratio", "0")), true),
        (Some(("max_filter_ratio", "0.5")), false),
        (Some(("where", "id > 1")), false),
    ] {
        let be = Server::start([Reply::Lose, committed()]).await;
        let fe = Server::start([to(&be), state("PRECOMMITTED"), to(&be)]).await;
        let properties = property.map(|(name, value)| (name.to_string(), value.to_string()));
        let options = SinkOptions::default().with_properties(properties.into_iter().collect()).unwrap();
        let sink = sink(&fe, options);
        let report = sink.write(data(vec![batch(&[1, 2, 3])])).await.unwrap();
        assert_eq!((report.rows, &report.filtered), (3, &None));
        assert_eq!(report.uncounted, report.labels[usize::from(counted)..], "{property:?}");
        let shown = DataSink::metrics(&sink).unwrap().to_string();
        let label = &report.labels[0];
        let Some(uncounted) = sink.uncounted() else {
            assert!(counted, "{property:?}");
            assert!(shown.contains("loaded_rows=3") && shown.contains("uncounted_rows=0"), "{shown}");
            continue;
        };
        assert_eq!((uncounted.rows, uncounted.loads, &uncounted.label), (3, 1, label));
        assert!(shown.contains("loaded_rows=0") && shown.contains("uncounted_rows=3"), "{shown}");
        assert!(shown.contains(&format!("uncounted_load={label}")), "{shown}");
        let told = uncounted.to_string();
        assert!(told.contains(&format!("FROM `db` WHERE Label = '{label}'")), "{told}");
    }
}
