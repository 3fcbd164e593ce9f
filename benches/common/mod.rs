//! What the benches share: a server process of their own, what a process has used, and a table of figures.
//!
//! Each bench uses a part of it.
#![allow(dead_code)]

pub mod backlog;
pub mod flight;
pub mod http;
pub mod measure;
pub mod server;
pub mod table;
pub mod usage;

use std::error::Error;
use std::time::Duration;

pub use server::Server;

/// Result of a bench.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// An amount that an environment variable may change.
pub fn amount(variable: &str, default: u64) -> Outcome<u64> {
    match std::env::var(variable) {
        Ok(text) => Ok(text.parse().map_err(|_| format!("{variable} must be a number, got {text}"))?),
        Err(_) => Ok(default),
    }
}

/// The middle of several measurements.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
