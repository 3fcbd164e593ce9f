//! Records and descriptions for tests.

use std::collections::BTreeMap;

use super::super::fingerprint::Fingerprint;
use super::super::record::{Checkpoint, Leftover, SourceState, VERSION};
use super::super::{Committable, Epoch, Generation, LabelSeries, SourcePosition};
use super::description::JobDescription;

pub(super) fn at(next_ms: i64) -> SourcePosition {
    SourcePosition::Changelog { next_ms }
}

/// Epoch `epoch` of generation 2, which ends at that second; one load is open.
pub(super) fn record(epoch: u64) -> Checkpoint {
    let ms = 1000 * i64::try_from(epoch).unwrap();
    let state = |ms| vec![SourceState { table: "shop.orders".into(), position: at(ms) }];
    let labels = LabelSeries {
        prefix: "p".into(),
        db: "shop".into(),
        table: "copy".into(),
        writers: 1,
        open_ended: false,
        stage: None,
    };
    let label = labels.label("mirror/c0ffee", Generation(2), Epoch(epoch), 0);
    Checkpoint {
        version: VERSION,
        job: "mirror".into(),
        chain: "c0ffee".into(),
        generation: Generation(2),
        epoch: Epoch(epoch),
        writer: "1-ab".into(),
        written_at: "2026-01-01T00:00:00Z".into(),
        sources: state(ms),
        previous: Some(state(ms - 1000)),
        committables: vec![Committable {
            db: "shop".into(),
            table: "copy".into(),
            label,
            txn_id: Some(4),
            host: "be:8040".into(),
            lane: 0,
            staged: None,
        }],
        rows: Some(12),
        carried_from: None,
        to_abort: vec![Leftover { generation: Generation(1), epoch: Epoch(3), labels: Some(labels.clone()) }],
        labels: Some(labels),
        note: None,
        dropped: false,
        fingerprint: Fingerprint::from_iter([("sink table", "shop.copy")]),
        nodes: BTreeMap::new(),
    }
}

pub(super) fn text(record: &Checkpoint) -> Vec<u8> {
    record.to_json().unwrap()
}

pub(super) fn described(objects: &[(&str, Vec<u8>)]) -> JobDescription {
    let objects: Vec<(String, Vec<u8>)> = objects.iter().map(|(name, text)| (name.to_string(), text.clone())).collect();
    let names: Vec<String> = objects.iter().map(|(name, _)| name.clone()).collect();
    JobDescription::of("mirror", "memory".into(), &objects, &names)
}
