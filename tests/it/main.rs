//! Integration tests: one binary, one module per subject.
//!
//! Each test starts a sandbox of its own ([`harness::Cluster`]) and works in a database of its own, so tests run in
//! parallel and need nothing from outside. With `DORIS_FENODES` (and `DORIS_JDBC_URL`, `DORIS_USERNAME`,
//! `DORIS_PASSWORD`) set, tests that need no fault run against that cluster instead; `DORIS_PROFILE` (`5.0-changelog` or
//! `5.0-binlog`) tells which of the tests for both builds it serves. Tests wait for signals, never for time.

mod batch;
mod batch_cases;
mod builder;
mod catalog;
mod catalog_cases;
mod catalog_listing;
mod changelog;
mod changelog_cases;
mod changelog_model;
mod changelog_modes;
mod changelog_schema;
mod changes_keys;
mod changes_swap;
mod changes_write;
mod checkpoint;
mod checkpoint_store;
mod cli;
mod commit_cases;
mod conformance;
mod connection_cases;
mod debezium;
mod delete_sign;
mod differential;
mod dml;
mod fallback;
mod group_commit;
mod hand_over;
mod harness;
mod history;
mod jobs;
mod lookup;
mod metrics;
mod mirror;
mod modes_overwrite;
mod outages;
mod outcomes;
mod overwrite;
mod parallel;
mod parallel_read;
mod pushdown;
mod read;
mod read_connections;
mod read_settings;
mod read_types_cases;
mod readme;
mod recovery;
mod round_trip;
mod round_trip_values;
mod signals;
mod statements;
mod static_side;
mod timed;
mod tpch;
mod tvf;
mod tvf_cases;
mod tvf_clean_up;
mod tvf_jobs;
mod tvf_log;
mod tvf_outcomes;
mod tvf_unread;
mod types_read;
mod write;
mod write_cases;
