//! Writes random changes to the source, and reads the tables at the end.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use tokio::time::sleep;

use crate::model::{Entry, Model, Op, Values};
use crate::random::Random;
use crate::server::Server;
use crate::{AUDITS, DATABASE, PASSWORD, compare_audit, compare_rows};

const COLUMNS: &str = "id BIGINT NOT NULL, v VARCHAR(200), n BIGINT NOT NULL";

/// The only one who writes to the source, over a connection that no fault touches: the answer to each statement is
/// known, and what was refused (while a backend is down) did not happen.
pub struct Writer {
    connection: Conn,
    random: Random,
    /// Statements so far.
    next: u64,
    /// Transactions that were refused.
    pub refused: usize,
    pub model: Model,
    /// Rows of an audit table, once it is compared.
    pub audited: usize,
}

impl Writer {
    /// Creates all tables and the first rows of the source.
    pub async fn start(server: &Server, mut random: Random) -> Self {
        let mysql = server.mysql();
        let (host, port) = mysql.rsplit_once(':').expect("host:port");
        let options = OptsBuilder::default()
            .ip_or_hostname(host)
            .tcp_port(port.parse().expect("a port"))
            .user(Some("root"))
            .pass(Some(PASSWORD))
            .prefer_socket(false)
            .max_allowed_packet(Some(64 << 20))
            .wait_timeout(Some(28_800))
            .stmt_cache_size(0);
        let connection = Conn::new(options).await.expect("connects");
        let model = Model::default();
        let seed = Op::seed(&mut random);
        let mut writer = Self { connection, random, next: 1, refused: 0, model, audited: 0 };
        let merge = "'replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true'";
        let setup = [
            format!("CREATE DATABASE {DATABASE}"),
            format!("USE {DATABASE}"),
            format!(
                "CREATE TABLE source ({COLUMNS}) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 24
                 PROPERTIES ({merge}, 'changelog.enable' = 'true', 'changelog.need_historical_value' = 'true')"
            ),
            format!(
                "CREATE TABLE mirror ({COLUMNS}) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 4 PROPERTIES ({merge})"
            ),
            format!(
                "CREATE TABLE offsets (consumer_id VARCHAR(256) NOT NULL, offset_timestamp DATETIME NOT NULL,
                 update_time DATETIME(3) NOT NULL) UNIQUE KEY(consumer_id) DISTRIBUTED BY HASH(consumer_id) BUCKETS 1
                 PROPERTIES ({merge})"
            ),
        ];
        let audits = AUDITS.map(|table| {
            format!(
                "CREATE TABLE {table} (id BIGINT NOT NULL, n BIGINT NOT NULL, kind VARCHAR(2) NOT NULL, v VARCHAR(200),
                 tso BIGINT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 4 PROPERTIES ('replication_num' = '1')"
            )
        });
        for statement in setup.into_iter().chain(audits) {
            writer.connection.query_drop(statement).await.expect("is created");
        }
        assert!(writer.apply(&seed).await, "the first rows are written");
        writer
    }

    /// Runs a transaction; false when it was refused, and nothing of it happened.
    async fn apply(&mut self, op: &Op) -> bool {
        for statement in op.sql("source") {
            match self.connection.query_drop(&statement).await {
                Ok(()) => {}
                Err(mysql_async::Error::Server(_)) => {
                    // A transaction that was begun ends with the first error, if not by itself.
                    let _ = self.connection.query_drop("ROLLBACK").await;
                    return false;
                }
                Err(error) => panic!("the outcome of {statement} is unknown: {error}"),
            }
        }
        self.model.committed(op);
        true
    }

    /// Writes until it is told to stop, and ends between two transactions.
    pub async fn run(&mut self, stop: &Cell<bool>) {
        while !stop.get() {
            self.write().await;
            sleep(Duration::from_millis(self.random.within(0..60))).await;
        }
    }

    async fn write(&mut self) {
        let op = Op::random(&mut self.random, self.next);
        self.next += 1;
        if !self.apply(&op).await {
            self.refused += 1;
        }
    }

    /// A few last changes, once everything is well again.
    pub async fn finish(&mut self) {
        let refused = self.refused;
        for _ in 0..5 {
            self.write().await;
        }
        assert_eq!(self.refused, refused, "nothing is down any more");
    }

    async fn rows(&mut self, table: &str) -> BTreeMap<u64, Values> {
        let sql = format!("SELECT id, v, n FROM {table}");
        let rows: Vec<(u64, Option<String>, u64)> = self.connection.query(sql).await.expect("rows");
        rows.into_iter().map(|(id, v, n)| (id, Values { v, n })).collect()
    }

    /// What is wrong with the tables.
    pub async fn compare(&mut self) -> Vec<String> {
        let (source, mirror) = (self.rows("source").await, self.rows("mirror").await);
        let mut problems = compare_rows("source", &self.model, &source);
        problems.extend(compare_rows("mirror", &self.model, &mirror));
        for table in AUDITS {
            let sql = format!("SELECT id, n, kind, v, tso FROM {table}");
            let stamped =
                |(id, n, kind, v, tso): (u64, u64, String, _, _)| (Entry { id, n, kind: known(&kind), v }, tso);
            let audit: Vec<(Entry, Option<u64>)> = self.connection.query_map(sql, stamped).await.expect("rows");
            self.audited = audit.len();
            problems.extend(compare_audit(table, &self.model, &audit));
        }
        problems
    }
}

fn known(kind: &str) -> &'static str {
    ["+I", "-U", "+U", "-D"].into_iter().find(|known| *known == kind).unwrap_or_else(|| panic!("no kind: {kind}"))
}
