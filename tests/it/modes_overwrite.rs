//! INSERT OVERWRITE and the report of a write where rows come in batches, or by way of an object store.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion_doris::DorisWriter;
use datafusion_doris::client::DorisClient;
use datafusion_doris::options::DorisOptions;
use doris_sandbox::{Action, Fault, Site};

use crate::harness::{lines, refusal, run};
use crate::tvf::{PATIENCE, Staging};

const BATCHES: [(&str, &str); 2] = [("sink.write-mode", "STREAM_LOAD_BATCH"), ("sink.buffer-flush.max-rows", "10")];
const STAGED: [(&str, &str); 2] = [("sink.write-mode", "TVF"), ("sink.s3.clean-up", "true")];
const MODES: [[(&str, &str); 2]; 2] = [BATCHES, STAGED];
/// Of the staging table.
const STATEMENT: &str = "with label `datafusion_doris_";

async fn tables(mode: &[(&str, &str)]) -> Staging {
    let staging = Staging::start().await;
    staging.cluster.unique_table("u", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
    staging.cluster.duplicate_table("d", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
    for table in ["u", "d"] {
        staging.cluster.doris(&format!("INSERT INTO {{db}}.{table} VALUES (1, 'old'), (2, 'old')")).await;
        staging.declare(table, mode).await;
    }
    staging
}

async fn rows(staging: &Staging, table: &str) -> Vec<String> {
    let rows = staging.cluster.doris(&format!("SELECT CONCAT(id, ' ', s) FROM {{db}}.{table} ORDER BY id, s")).await;
    rows.into_iter().flatten().flatten().collect()
}

async fn nothing_is_left(staging: &Staging) {
    let tables: Vec<String> =
        staging.cluster.doris("SHOW TABLES FROM {db}").await.into_iter().flatten().flatten().collect();
    assert_eq!(tables, ["d", "u"]);
    assert_eq!((staging.keys(), staging.s3.open_uploads()), (vec![], 0));
    let ended = staging.cluster.server().until(|server| server.running_transactions() == 0);
    tokio::time::timeout(PATIENCE, ended).await.expect("no transaction stays open");
}

#[tokio::test]
async fn all_rows_are_replaced_in_batches_and_by_staged_objects() {
    for mode in MODES {
        for parallelism in ["1", "3"] {
            for two_phases in ["true", "false"] {
                if mode == STAGED && two_phases == "false" {
                    continue;
                }
                let more = [("sink.parallelism", parallelism), ("sink.enable-2pc", two_phases)];
                let staging = tables(&[&mode[..], &more].concat()).await;
                for table in ["u", "d"] {
                    let new = "SELECT value, concat('v', value) FROM generate_series(1, 35)";
                    let written = run(&staging.ctx, &format!("INSERT OVERWRITE {table} {new}")).await;
                    assert_eq!(lines(&written), ["35"], "{mode:?} {more:?} {table}");
                    let found = rows(&staging, table).await;
                    assert_eq!((found.len(), found[1].as_str()), (35, "2 v2"), "{mode:?} {more:?} {table}");
                    // By nothing.
                    run(&staging.ctx, &format!("INSERT OVERWRITE {table} {new} WHERE false")).await;
                    assert!(rows(&staging, table).await.is_empty(), "{mode:?} {more:?} {table}");
                }
                nothing_is_left(&staging).await;
            }
        }
    }
}

#[tokio::test]
async fn the_last_row_of_a_key_replaces_those_before_it() {
    for mode in MODES {
        let staging = tables(&mode).await;
        run(&staging.ctx, "SET datafusion.execution.target_partitions = 1").await;
        let new = "SELECT value % 3, concat('v', value) FROM generate_series(0, 29)";
        run(&staging.ctx, &format!("INSERT OVERWRITE u {new}")).await;
        assert_eq!(rows(&staging, "u").await, ["0 v27", "1 v28", "2 v29"], "{mode:?}");
        nothing_is_left(&staging).await;
    }
}

#[tokio::test]
async fn what_fails_leaves_the_old_rows_and_nothing_else() {
    for mode in MODES {
        let staging = tables(&mode).await;
        // Of a value, which Doris refuses.
        let message = refusal(&staging.ctx, "INSERT OVERWRITE u VALUES (5, 'x'), (6, repeat('x', 41))").await;
        let target = staging.cluster.table("u");
        for part in ["schema length: 40", &format!("staged for {target}")] {
            assert!(message.contains(part), "{mode:?}: no {part} in {message}");
        }
        // Of the input, after some batches and objects.
        let late = "CAST(CAST(CASE WHEN value > 90000 THEN 'x' ELSE '1' END AS INT) AS VARCHAR)";
        refusal(&staging.ctx, &format!("INSERT OVERWRITE d SELECT value, {late} FROM generate_series(1, 100000)"))
            .await;
        // Of the last statement.
        let failure = Action::FailCommit("told to fail".to_owned());
        staging.cluster.server().faults().push(Fault::new(failure).at(Site::Mysql).when("insert overwrite table"));
        let message = refusal(&staging.ctx, "INSERT OVERWRITE d VALUES (5, 'x')").await;
        assert!(message.contains("told to fail"), "{mode:?}: {message}");
        assert_eq!(rows(&staging, "u").await, ["1 old", "2 old"], "{mode:?}");
        assert_eq!(rows(&staging, "d").await, ["1 old", "2 old"], "{mode:?}");
        nothing_is_left(&staging).await;
    }
}

#[tokio::test]
async fn a_lost_answer_of_the_staged_rows_is_resolved() {
    let staging = tables(&STAGED).await;
    staging.cluster.server().faults().push(Fault::new(Action::DropAnswer).at(Site::Mysql).when(STATEMENT));
    let written = run(&staging.ctx, "INSERT OVERWRITE d SELECT value, 'x' FROM generate_series(1, 20)").await;
    assert_eq!(lines(&written), ["20"]);
    assert_eq!(staging.cluster.server().faults().armed(), 0, "the answer was lost");
    assert_eq!(rows(&staging, "d").await.len(), 20);
    nothing_is_left(&staging).await;
}

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(ids.clone().map(|id| format!("v{id}"))));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    RecordBatch::try_from_iter([("id", ids), ("s", texts)]).expect("a batch")
}

#[tokio::test]
async fn labels_of_a_report_are_those_of_its_loads_in_the_order_of_their_commits() {
    let cases = [
        (BATCHES, "1", "false", 3),
        (BATCHES, "1", "true", 3),
        (BATCHES, "2", "true", 4),
        (STAGED, "1", "true", 1),
        (STAGED, "3", "true", 1),
    ];
    for (mode, parallelism, two_phases, loads) in cases {
        let more = [("sink.parallelism", parallelism), ("sink.enable-2pc", two_phases)];
        let staging = tables(&[]).await;
        let options: HashMap<String, String> = staging.options("d", &[&mode[..], &more].concat()).into_iter().collect();
        let options = DorisOptions::from_map(options).expect("options");
        let client = DorisClient::try_new(Arc::new(options.connection.clone())).expect("a client");
        let writer = DorisWriter::builder(options).build(&batch(0..1).schema()).await.expect("a writer");
        let report = writer.write_batches(vec![batch(0..13), batch(13..25)]).await.expect("written");
        assert_eq!((report.rows, report.labels.len()), (25, loads), "{mode:?} {more:?}");
        assert_eq!((report.uncounted.len(), report.filtered), (0, None), "{mode:?} {more:?}");
        for label in &report.labels {
            let state = client.label_state(staging.cluster.database(), label).await.expect("a state");
            assert_eq!(state.to_string(), "VISIBLE", "{mode:?} {more:?} {label}");
        }
        // Doris numbers transactions as they begin, which is the order of the batches of a writer.
        let mut commits = Vec::new();
        for label in &report.labels {
            let shown = staging.cluster.doris(&format!("SHOW TRANSACTION FROM {{db}} WHERE label = '{label}'")).await;
            commits.push(shown[0][0].clone().expect("an id").parse::<u64>().expect("a number"));
        }
        if parallelism == "1" {
            assert!(commits.is_sorted(), "{mode:?} {more:?}: {commits:?}");
        }
        let again = writer.write_batches(vec![batch(0..1)]).await.expect("written");
        assert!(again.labels.len() == 1 && !report.labels.contains(&again.labels[0]), "{:?}", again.labels);
        let none = writer.write_batches(vec![batch(0..0)]).await.expect("nothing");
        assert_eq!((none.rows, none.labels.len(), none.uncounted.len()), (0, 0, 0), "{mode:?} {more:?}");
    }
}
