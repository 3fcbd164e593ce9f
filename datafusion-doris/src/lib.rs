//! Apache Doris for Apache DataFusion.

pub mod changelog;
pub mod checkpoint;
pub mod client;
pub mod error;
pub mod factory;
pub mod job;
pub mod optimizer;
pub mod options;
pub mod protocol;
pub mod scan;
mod session;
pub mod sink;
pub mod sql;
pub mod table;
pub mod types;

pub use error::{Error, Result, Retry};
pub use factory::DorisTableFactory;
pub use session::{register, session_context, sql};
pub use table::{DorisTable, DorisTableBuilder};
