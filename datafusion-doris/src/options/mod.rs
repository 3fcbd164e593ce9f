//! Options: one validated struct per concern, parsed once from a string map.

mod connection;
mod read;
mod sink;
mod value;

pub use connection::ConnectionOptions;
pub use read::{BoundedMode, ReadOptions, ScanMode};
pub use sink::{Compression, SinkFormat, SinkOptions};
pub use value::Secret;

use crate::types::TableIdent;

/// All options of one Doris table.
#[derive(Debug, Clone)]
pub struct DorisOptions {
    /// `table.identifier`: the table in Doris.
    pub table: TableIdent,
    /// Hosts, credentials and timeouts.
    pub connection: ConnectionOptions,
    /// `source.*` options.
    pub read: ReadOptions,
    /// `sink.*` options.
    pub sink: SinkOptions,
}
