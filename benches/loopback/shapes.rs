//! Tables of several shapes.

use crate::common::Outcome;

/// A table: its columns in Doris, and a query that makes rows for it of numbers `value`.
pub struct Shape {
    pub name: &'static str,
    pub columns: &'static str,
    pub rows: &'static str,
    /// Rows that the server holds and repeats.
    pub base: u64,
    /// Rows of a run.
    pub total: u64,
}

/// The shapes that are measured.
pub const SHAPES: &[Shape] = &[
    Shape {
        name: "int64x8",
        columns: "c0 BIGINT, c1 BIGINT, c2 BIGINT, c3 BIGINT, c4 BIGINT, c5 BIGINT, c6 BIGINT, c7 BIGINT",
        rows:
            "SELECT value AS c0, value * 3 AS c1, value * 5 AS c2, value * 7 AS c3, value * 11 AS c4, value * 13 AS c5,
               value * 17 AS c6, value * 19 AS c7",
        base: 262_144,
        total: 20_000_000,
    },
    Shape {
        name: "flights",
        columns: "id BIGINT, at DATETIME(6), delay INT, distance DOUBLE, origin VARCHAR(8), destination VARCHAR(8),
                  fare DECIMAL(10, 2), cancelled BOOLEAN",
        rows: "SELECT value AS id, CAST(to_timestamp(978307200 + value * 37) AS TIMESTAMP(6)) AS at,
               CAST(value * 7919 % 400 - 60 AS INT) AS delay, CAST(value % 2600 AS DOUBLE) + 0.25 AS distance,
               concat('O', chr(65 + value % 26), chr(65 + value / 26 % 17)) AS origin,
               concat('D', chr(65 + value * 3 % 26), chr(65 + value / 7 % 19)) AS destination,
               CAST(value % 90000 AS DECIMAL(10, 2)) / 100 AS fare, value % 50 = 0 AS cancelled",
        base: 262_144,
        total: 15_000_000,
    },
    Shape {
        name: "text",
        columns: "id BIGINT, title VARCHAR(200), body STRING",
        rows: "SELECT value AS id, concat('title of row ', CAST(value AS VARCHAR)) AS title,
               repeat(concat('some words of body ', CAST(value % 1000 AS VARCHAR), ' '), 12) AS body",
        base: 65_536,
        total: 4_000_000,
    },
    Shape {
        name: "nested",
        columns: "id BIGINT, tags ARRAY<VARCHAR(20)>, place STRUCT<lat:DOUBLE, lon:DOUBLE>",
        rows: "SELECT value AS id, make_array(concat('t', CAST(value % 100 AS VARCHAR)), 'second') AS tags,
               named_struct('lat', CAST(value % 90 AS DOUBLE), 'lon', CAST(value % 180 AS DOUBLE)) AS place",
        base: 65_536,
        total: 6_000_000,
    },
];

/// The rows of a table as people have them: numbers, times, short texts.
pub fn flights() -> Outcome<&'static Shape> {
    SHAPES.iter().find(|shape| shape.name == "flights").ok_or_else(|| "there is no shape flights".into())
}

impl Shape {
    /// Makes the table in Doris, with further properties (beginning with a comma).
    pub fn create(&self, table: &str, properties: &str) -> String {
        let key = self.columns.split(' ').next().unwrap_or_default();
        format!(
            "CREATE TABLE bench.{table} ({}) DUPLICATE KEY({key}) DISTRIBUTED BY HASH({key}) BUCKETS 1 \
             PROPERTIES ('replication_num' = '1'{properties})",
            self.columns
        )
    }

    /// A query that gives so many rows.
    pub fn query(&self, rows: u64) -> String {
        format!("{} FROM generate_series(1, {rows})", self.rows)
    }

    /// Names of the columns.
    pub fn names(&self) -> Vec<&'static str> {
        let mut depth = 0;
        let mut names = Vec::new();
        for part in self.columns.split(',') {
            if depth == 0 {
                names.extend(part.split_whitespace().next());
            }
            depth += part.matches(['<', '(']).count();
            depth -= part.matches(['>', ')']).count();
        }
        names
    }
}
