//! Statements over the MySQL protocol.

use std::net::SocketAddr;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, OptsBuilder, Row, Value};

use super::matching::{cell, expect_refusal, glob};
use super::record::Record;
use super::run::compare;

/// One connection.
pub struct Mysql(Conn);

struct Answer {
    rows: Vec<String>,
    affected: u64,
    warnings: u16,
    info: String,
}

/// A refusal, or what else went wrong.
fn refusal(error: &Error) -> String {
    match error {
        Error::Server(e) => format!("{} {}", e.code, e.message),
        other => format!("0 {other}"),
    }
}

impl Mysql {
    /// Logs in.
    pub async fn connect(at: SocketAddr, user: &str, password: &str, db: Option<&str>) -> Result<Self, String> {
        let options = OptsBuilder::default()
            .ip_or_hostname(at.ip().to_string())
            .tcp_port(at.port())
            .prefer_socket(false)
            .user(Some(user))
            .pass(Some(password))
            .db_name(db);
        Conn::new(options).await.map(Self).map_err(|error| refusal(&error))
    }

    /// The `login` verb.
    pub async fn check_login(at: SocketAddr, words: &[&str], expected: &[String]) -> Result<(), String> {
        let [user, password, db @ ..] = words else { return Err("login USER PASSWORD [DATABASE]".to_owned()) };
        let expected = expected.first().map_or("ok", String::as_str);
        match (Self::connect(at, user, password, db.first().copied()).await, expected.strip_prefix("error ")) {
            (Ok(_), None) => Ok(()),
            (Err(got), Some(refusal)) => expect_refusal(refusal, &got),
            (Ok(_), Some(_)) => Err(format!("expected {expected}\ngot a login")),
            (Err(got), None) => Err(format!("refused: {got}")),
        }
    }

    async fn run(&mut self, sql: &str, record: Option<&Record>) -> Result<Answer, Error> {
        let mut result = self.0.query_iter(sql).await?;
        let mut rows = Vec::new();
        let mut sets = 0;
        loop {
            let columns = result.columns();
            if let Some(columns) = columns.filter(|columns| !columns.is_empty()) {
                if sets > 0 {
                    rows.push("--".to_owned());
                }
                sets += 1;
                if record.is_some_and(|r| r.has("names")) {
                    let names: Vec<_> = columns.iter().map(|c| c.name_str().into_owned()).collect();
                    rows.push(names.join(" | "));
                }
                if record.is_some_and(|r| r.has("types")) {
                    let types: Vec<_> = columns
                        .iter()
                        .map(|c| format!("{:?}", c.column_type()).trim_start_matches("MYSQL_TYPE_").to_owned())
                        .collect();
                    rows.push(types.join(" | "));
                }
            }
            for row in result.collect::<Row>().await? {
                let cells: Vec<String> = row
                    .unwrap()
                    .into_iter()
                    .map(|value| match value {
                        Value::NULL => cell(None),
                        Value::Bytes(bytes) => cell(Some(&String::from_utf8_lossy(&bytes))),
                        other => format!("{other:?}"),
                    })
                    .collect();
                rows.push(cells.join(" | "));
            }
            if result.is_empty() {
                break;
            }
        }
        // An error behind the last set shows only here.
        result.drop_result().await?;
        let conn = &self.0;
        Ok(Answer {
            rows,
            affected: conn.affected_rows(),
            warnings: conn.get_warnings(),
            info: conn.info().into_owned(),
        })
    }

    /// First cell of a query.
    pub async fn scalar(&mut self, sql: &str) -> Result<String, String> {
        let answer = self.run(sql, None).await.map_err(|error| refusal(&error))?;
        let first = answer.rows.first().ok_or("no row")?;
        Ok(first.split(" | ").next().unwrap_or_default().to_owned())
    }

    /// The verbs `setup`, `ok`, `query` and `error`.
    pub async fn check(&mut self, record: &Record) -> Result<(), String> {
        let result = self.run(&record.sql(), Some(record)).await;
        match (record.verb.as_str(), result) {
            ("error", Err(error)) => expect_refusal(record.arguments.trim(), &refusal(&error)),
            ("error", Ok(answer)) => Err(format!("expected error {}\ngot {:?}", record.arguments, answer.rows)),
            (_, Err(error)) => Err(format!("refused: {}", refusal(&error))),
            ("query", Ok(answer)) => compare(record, &answer.rows),
            (_, Ok(answer)) => {
                for line in &record.expected {
                    let (what, value) = line.split_once(' ').unwrap_or((line, ""));
                    let got = match what {
                        "affected" => answer.affected.to_string(),
                        "warnings" => answer.warnings.to_string(),
                        "info" => answer.info.clone(),
                        other => return Err(format!("no such expectation: {other}")),
                    };
                    if !glob(value, &got) {
                        return Err(format!("expected {line}\ngot      {what} {got}"));
                    }
                }
                Ok(())
            }
        }
    }
}
