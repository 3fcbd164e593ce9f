//! Apache Doris for Apache DataFusion: tables, changelogs and transactional sinks in SQL.
//!
//! ```no_run
//! # async fn example() -> datafusion::error::Result<()> {
//! let context = datafusion_doris::session_context();
//! datafusion_doris::sql(
//!     &context,
//!     "CREATE EXTERNAL TABLE students STORED AS DORIS OPTIONS (
//!          'fenodes' 'fe:8030', 'table.identifier' 'school.students', 'username' 'root', 'password' '')",
//! )
//! .await?;
//! context.sql("SELECT name FROM students WHERE grade > 5").await?.show().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`register`] adds the same to a context of one's own, and [`DorisTable`] is a table provider without DDL.
//!
//! | What | How | Where |
//! | --- | --- | --- |
//! | read a table | Arrow Flight SQL, or the MySQL protocol, split by tablets; filters, columns and limits are sent as Doris SQL | [`scan`] |
//! | all tables of a cluster | a catalog: `SELECT … FROM doris.db.table` | [`catalog`] |
//! | aggregate, sort and join in Doris | a logical rule turns them into statements of Doris | [`pushdown`] |
//! | read its changes | windows of the changelog, an unbounded stream with a change kind per row | [`changelog`] |
//! | write | Stream Load with two-phase commit: a statement is visible whole or not at all | [`sink`] |
//! | write by way of an object store | staged as JSON or Parquet, taken by one `INSERT … SELECT … FROM S3(…)`, exactly once by its label | [`sink`] |
//! | change in place | `DELETE`, `UPDATE` and `TRUNCATE` are sent to Doris whole, where they mean the same there | [`dml`] |
//! | replace all rows | `INSERT OVERWRITE` over a staging table, atomic | [`sink`] |
//! | write from a program | any stream of record batches, or of Debezium events, without SQL | [`writer`] |
//! | look up | a stream joined with a table asks for the rows of its keys, with a bounded cache | [`lookup`] |
//! | mirror continuously | `INSERT INTO sink SELECT … FROM changelog` in epochs, as a background job | [`checkpoint`], [`job`] |
//!
//! ```text
//! error, options, types, sql, protocol (pure) ◀── client (all I/O) ◀── scan, changelog, sink, debezium ◀── table ◀── catalog, pushdown, factory, job
//! ```

pub mod catalog;
pub mod changelog;
pub mod checkpoint;
pub mod client;
mod count;
pub mod debezium;
pub mod dml;
pub mod error;
pub mod factory;
#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub mod failpoints;
#[cfg(not(feature = "failpoints"))]
mod failpoints;
pub mod job;
mod listed_sign;
pub mod lookup;
pub mod optimizer;
pub mod options;
pub mod protocol;
pub mod pushdown;
pub mod scan;
mod session;
pub mod sink;
pub mod sql;
mod statement;
pub mod table;
pub mod types;
pub mod writer;

pub use catalog::DorisCatalog;
pub use error::{Error, Outlook, Result, Retry};
pub use factory::DorisTableFactory;
pub use session::{register, session_context, sql};
pub use sink::WriteReport;
pub use table::{DorisTable, DorisTableBuilder};
pub use writer::{DorisWriter, DorisWriterBuilder};
