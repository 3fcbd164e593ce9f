//! Apache Doris for Apache DataFusion.

pub mod changelog;
pub mod checkpoint;
pub mod client;
pub mod error;
pub mod options;
pub mod sink;
pub mod types;

pub use error::{Error, Result, Retry};
