//! A Doris-compatible server in one process.
