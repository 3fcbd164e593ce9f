//! Statements through a session, as every protocol runs them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use futures::TryStreamExt;

use crate::engine::{Engine, EngineConfig, ManualClock, Profile, Protocol, StatementResult};
use crate::error::SqlError;
use crate::session::Session;
use crate::types::{TextStyle, text_value};

mod alter;
mod changes;
mod changes_models;
mod fences;
mod functions;
mod history;
mod models;
mod refusals;
mod selects;
mod semantics;
mod sessions;
mod statements;
mod streams;
mod tvf;
mod users;
mod views;

/// 2024-01-01 00:00:00 UTC.
const START_MS: i64 = 1_704_067_200_000;

struct Fixture {
    engine: Arc<Engine>,
    clock: Arc<ManualClock>,
    session: Session,
}

impl Fixture {
    fn new(profile: Profile) -> Self {
        let clock = Arc::new(ManualClock::new(START_MS));
        let engine = Engine::new(EngineConfig {
            profile,
            clock: Arc::clone(&clock) as _,
            time_zone: "UTC".to_owned(),
            ..EngineConfig::default()
        });
        let session = engine.open_session("root", "127.0.0.1", Protocol::Mysql);
        Self { engine, clock, session }
    }

    /// A database `d`, current, of the newest profile.
    async fn with_database() -> Self {
        let mut fixture = Self::new(Profile::default());
        fixture.run("CREATE DATABASE d; USE d").await;
        fixture
    }

    async fn run(&mut self, sql: &str) {
        if let Err(error) = self.session.execute(sql).await {
            panic!("{sql}: {error}");
        }
    }

    async fn error(&mut self, sql: &str) -> SqlError {
        match self.session.execute(sql).await {
            Ok(_) => panic!("{sql} was not refused"),
            Err(error) => error,
        }
    }

    async fn affected(&mut self, sql: &str) -> u64 {
        match self.session.execute(sql).await.expect(sql).pop() {
            Some(StatementResult::Done { affected, .. }) => affected,
            other => panic!("{sql}: {other:?}"),
        }
    }

    /// Rows of the last statement as MySQL text, cells joined by `|`.
    async fn rows(&mut self, sql: &str) -> Vec<String> {
        match self.try_rows(sql).await {
            Ok(rows) => rows,
            Err(error) => panic!("{sql}: {error}"),
        }
    }

    async fn try_rows(&mut self, sql: &str) -> Result<Vec<String>, String> {
        let result = self.session.execute(sql).await.map_err(|error| error.to_string())?.pop();
        let Some(StatementResult::Rows { stream, types, schema, .. }) = result else { panic!("{sql}: no rows") };
        let batches: Vec<_> = stream.try_collect().await.map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        for batch in &batches {
            assert_eq!(batch.schema(), schema, "{sql}");
            for row in 0..batch.num_rows() {
                let cells: Vec<String> = batch
                    .columns()
                    .iter()
                    .zip(&types)
                    .map(|(c, ty)| text_value(c, row, ty, TextStyle::Mysql).unwrap_or_else(|| "NULL".to_owned()))
                    .collect();
                out.push(cells.join("|"));
            }
        }
        Ok(out)
    }

    async fn sorted(&mut self, sql: &str) -> Vec<String> {
        let mut rows = self.rows(sql).await;
        rows.sort();
        rows
    }
}

/// Each expression, selected alone, gives one row that reads like this; all that differ are told at once.
async fn check(f: &mut Fixture, cases: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (expr, expected) in cases {
        let got = f.try_rows(&format!("SELECT {expr}")).await;
        if got.as_deref() != Ok([(*expected).to_owned()].as_slice()) {
            wrong.push(format!("{expr}: {got:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
