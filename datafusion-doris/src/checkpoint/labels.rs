//! How the labels of a job's loads are made: from this alone a load that is in no record can be found again.

use serde::{Deserialize, Serialize};

use super::{Committable, Epoch, Generation, StagePlace, Staged};
use crate::protocol::LabelIdentity;

/// What all labels of a sink have in common. Two-phase loads only: others leave nothing to be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelSeries {
    /// `sink.label-prefix`.
    pub prefix: String,
    /// Database of the target.
    pub db: String,
    /// Target table.
    pub table: String,
    /// Loads of one epoch.
    pub writers: u32,
    /// Where their rows are staged; absent when they are in Doris from the start on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StagePlace>,
}

impl LabelSeries {
    /// The label of one load of an epoch; `job` is the job's name as labels carry it.
    pub fn label(&self, job: &str, generation: Generation, epoch: Epoch, writer: u32) -> String {
        let identity = LabelIdentity { prefix: &self.prefix, database: &self.db, table: &self.table, job };
        identity.label(generation.0, epoch.0, writer)
    }

    /// The loads that an epoch may have left behind.
    pub fn loads_of(&self, job: &str, generation: Generation, epoch: Epoch) -> Vec<Committable> {
        let load = |writer| {
            let label = self.label(job, generation, epoch, writer);
            let staged = self.stage.as_ref().map(|place| Staged::unknown(&place.bucket, place.folder(&label)));
            let (db, table) = (self.db.clone(), self.table.clone());
            Committable { db, table, label, txn_id: None, host: String::new(), staged }
        };
        (0..self.writers).map(load).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_an_epoch_are_one_per_writer() {
        let series = LabelSeries { prefix: "p".into(), db: "d".into(), table: "t".into(), writers: 2, stage: None };
        let loads = series.loads_of("job/1", Generation(3), Epoch(4));
        let labels: Vec<&str> = loads.iter().map(|load| load.label.as_str()).collect();
        assert!(labels[0].starts_with("p_d_t_") && labels[0].ends_with("_3_4_0"), "{labels:?}");
        assert!(labels[1].ends_with("_3_4_1"), "{labels:?}");
        assert_eq!((loads[0].db.as_str(), loads[0].table.as_str(), loads[0].txn_id), ("d", "t", None));
        assert_eq!(loads[0].staged, None);
        let stage = Some(StagePlace { bucket: "b".into(), prefix: "p/q".into() });
        let staged = LabelSeries { stage, ..series }.loads_of("job/1", Generation(3), Epoch(4));
        let folder = format!("p/q/{}/", staged[0].label);
        assert_eq!(staged[0].staged, Some(Staged::unknown("b", folder)));
    }
}
