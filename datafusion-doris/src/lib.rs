//! Apache Doris for Apache DataFusion.

pub mod changelog;
pub mod checkpoint;
pub mod client;
pub mod error;
pub mod options;
pub mod protocol;
pub mod sink;
pub mod sql;
pub mod types;

pub use error::{Error, Result, Retry};
