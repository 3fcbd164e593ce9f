//! A Doris-compatible server in one process.

mod changelog;
pub mod engine;
pub mod error;
mod native_password;
pub mod session;
mod sql;
mod storage;
mod txn;
pub mod types;

pub use engine::{Engine, EngineConfig, Profile};
pub use error::{LoadError, SqlError};
pub use session::Session;
pub use storage::{Column, DefaultValue, KeysType};
pub use txn::{LoadTxn, TxnState};
