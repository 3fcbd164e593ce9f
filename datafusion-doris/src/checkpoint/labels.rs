//! How the labels of a job's loads are made: from this alone a load that is in no record can be found again.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Committable, Epoch, Generation, StagePlace, Staged};
use crate::protocol::{LabelIdentity, LabelState};

/// What all labels of a sink have in common. Two-phase loads only: others leave nothing to be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelSeries {
    /// `sink.label-prefix`.
    pub prefix: String,
    /// Database of the target.
    pub db: String,
    /// Target table.
    pub table: String,
    /// Loads of one epoch; of an open-ended series, those that each epoch begins with.
    pub writers: u32,
    /// Each writer has as many loads as it needs, one after the other: after load `n` comes `n` + `writers`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_ended: bool,
    /// Where their rows are staged; absent when they are in Doris from the start on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StagePlace>,
}

impl LabelSeries {
    /// The label of one load of an epoch; `job` is the job's name as labels carry it.
    pub fn label(&self, job: &str, generation: Generation, epoch: Epoch, load: u32) -> String {
        let identity = LabelIdentity { prefix: &self.prefix, database: &self.db, table: &self.table, job };
        identity.label(generation.0, epoch.0, load)
    }

    /// Looks for the loads that an epoch may have left behind.
    pub fn search(&self, job: &str, generation: Generation, epoch: Epoch) -> LoadSearch {
        LoadSearch {
            series: Some((self.clone(), job.to_string(), generation, epoch)),
            open: (0..self.writers).collect(),
            asked: None,
            known: VecDeque::new(),
        }
    }
}

/// Loads that may be there, one after the other. Each is followed by what the server says of it:
///
/// ```text
/// next() ── load 0 ── answered(..) ── next() ── load 1 ── answered(..) … None
/// ```
///
/// The loads of an open-ended series are opened one after the other, so behind a label that the server does not know
/// there are none.
#[derive(Debug, Clone)]
pub struct LoadSearch {
    series: Option<(LabelSeries, String, Generation, Epoch)>,
    /// Numbers to ask for.
    open: VecDeque<u32>,
    /// The last one, while its answer is not told.
    asked: Option<u32>,
    /// Loads that are asked for first.
    known: VecDeque<Committable>,
}

impl LoadSearch {
    /// These and no others.
    pub fn of(loads: Vec<Committable>) -> Self {
        Self { series: None, open: VecDeque::new(), asked: None, known: loads.into() }
    }

    /// The next load; all that is known of it is its label.
    pub fn next_load(&mut self) -> Option<Committable> {
        if let Some(load) = self.known.pop_front() {
            return Some(load);
        }
        let (series, job, generation, epoch) = self.series.as_ref()?;
        let number = self.open.pop_front()?;
        self.asked = Some(number);
        let label = series.label(job, *generation, *epoch, number);
        let staged = series.stage.as_ref().map(|place| Staged::unknown(&place.bucket, place.folder(&label)));
        Some(Committable {
            db: series.db.clone(),
            table: series.table.clone(),
            label,
            txn_id: None,
            host: String::new(),
            lane: number % series.writers.max(1),
            staged,
        })
    }

    /// What the server says of the load that was given last.
    pub fn answered(&mut self, state: LabelState) {
        let (Some(number), Some((series, ..))) = (self.asked.take(), &self.series) else { return };
        if series.open_ended && state != LabelState::Unknown {
            self.open.extend(number.checked_add(series.writers));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn series(open_ended: bool) -> LabelSeries {
        LabelSeries { prefix: "p".into(), db: "d".into(), table: "t".into(), writers: 2, open_ended, stage: None }
    }

    /// Labels that are asked for, without what all have in common, when the server knows `there`.
    fn asked(mut search: LoadSearch, there: &[&str]) -> Vec<String> {
        let mut labels = vec![];
        while let Some(load) = search.next_load() {
            assert_eq!((load.db.as_str(), load.table.as_str(), load.txn_id), ("d", "t", None));
            assert!(load.label.starts_with("p_d_t_"), "{}", load.label);
            let number = load.label.split("_3_4_").last().unwrap().to_string();
            let is_there = there.contains(&number.as_str());
            search.answered(if is_there { LabelState::Aborted } else { LabelState::Unknown });
            labels.push(number);
        }
        labels
    }

    #[test]
    fn loads_of_an_epoch_are_one_per_writer() {
        let search = series(false).search("job/1", Generation(3), Epoch(4));
        assert_eq!(asked(search.clone(), &[]), ["0", "1"]);
        assert_eq!(asked(search, &["0", "1", "2"]), ["0", "1"]);
    }

    #[test]
    fn an_open_ended_series_goes_on_per_writer_until_a_label_is_not_known() {
        let search = series(true).search("job/1", Generation(3), Epoch(4));
        assert_eq!(asked(search.clone(), &[]), ["0", "1"]);
        assert_eq!(asked(search.clone(), &["1", "3", "5"]), ["0", "1", "3", "5", "7"]);
        assert_eq!(asked(search, &["0", "1", "2", "4", "9"]), ["0", "1", "2", "3", "4", "6"]);
    }

    #[test]
    fn a_record_that_does_not_tell_is_of_a_series_with_an_end() {
        let old = r#"{"prefix": "p", "db": "d", "table": "t", "writers": 2}"#;
        let read: LabelSeries = serde_json::from_str(old).unwrap();
        assert_eq!(read, series(false));
        assert!(!serde_json::to_string(&read).unwrap().contains("open_ended"));
        let open = serde_json::to_string(&series(true)).unwrap();
        assert_eq!(serde_json::from_str::<LabelSeries>(&open).unwrap(), series(true));
    }

    #[test]
    fn given_loads_are_asked_for_and_no_others() {
        let load = series(true).search("job", Generation(3), Epoch(4)).next_load().unwrap();
        assert_eq!(asked(LoadSearch::of(vec![load]), &["0"]), ["0"]);
    }

    #[test]
    fn staged_loads_are_told_with_their_folder() {
        let stage = Some(StagePlace { bucket: "b".into(), prefix: "p/q".into() });
        let staged = LabelSeries { stage, ..series(false) };
        let load = staged.search("job/1", Generation(3), Epoch(4)).next_load().unwrap();
        let folder = format!("p/q/{}/", load.label);
        assert_eq!(load.staged, Some(Staged::unknown("b", folder)));
        let plain = series(false).search("job/1", Generation(3), Epoch(4)).next_load().unwrap();
        assert_eq!(plain.staged, None);
    }
}
