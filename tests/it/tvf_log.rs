//! What the log tells of staged rows: enough to find the objects, and nothing that opens them.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::harness::run;
use crate::tvf::Staging;

/// Events of the library, as `LEVEL name=value …`.
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
        self.0.lock().expect("not poisoned").push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn staged_objects_are_listed_and_their_load_is_one_event() {
    let events = Events::default();
    // With only one dispatcher, an event that a test on another thread meets first would be off for this one as well.
    let _second = tracing::Dispatch::new(Events::default());
    let _events = tracing::subscriber::set_default(events.clone());
    let staging = Staging::duplicate(&[("sink.parallelism", "3")]).await;
    run(&staging.ctx, "SET datafusion.execution.batch_size = 10").await;
    run(&staging.ctx, "INSERT INTO t SELECT value, 'x' FROM generate_series(1, 100)").await;
    let lines = events.0.lock().expect("not poisoned").clone();
    let line = |message: &str| {
        let [line] = lines.iter().filter(|line| line.contains(message)).collect::<Vec<_>>()[..] else {
            panic!("{message} is not there once: {lines:#?}")
        };
        line.clone()
    };
    let (staged, keys) = (line("message=rows are staged"), staging.keys());
    assert_eq!(keys.len(), 3);
    for part in keys.iter().map(String::as_str).chain(["INFO ", "bucket=\"lake\"", "rows=100"]) {
        assert!(staged.contains(part), "no {part} in {staged}");
    }
    let load = line("message=a load has ended");
    let bytes: usize = keys.iter().map(|key| staging.s3.get("lake", key).expect("an object").len()).sum();
    let table = format!("table=\"{}\"", staging.cluster.table("t"));
    for part in [
        "INFO ",
        "kind=\"Staged\"",
        "txn_id=",
        "total_rows=100",
        "loaded_rows=100",
        "filtered_rows=0",
        "affected_rows=100",
        "label=\"datafusion_doris_",
        &format!("load_bytes={bytes}"),
        &table,
    ] {
        assert!(load.contains(part), "no {part} in {load}");
    }
    assert!(lines.iter().all(|line| !line.contains("top-secret") && !line.contains("sandbox-access")), "{lines:#?}");
}
