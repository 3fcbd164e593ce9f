//! Recorded changes: the TSO clock, change records, the windows of `@incr`, the past of a table.

mod fence;
mod fold;
mod incr;
mod names;
mod properties;
mod record;
mod rows;
mod stream;
mod travel;
mod tso;

pub use fence::IncrFailure;
pub(crate) use fence::{Fence, FenceRequest, IncrFailures};
pub(crate) use incr::{Incr, IncrSpec, IncrType, retained_from};
pub(crate) use names::{BEFORE, ChangeColumns, Names};
pub(crate) use properties::{
    Facts as ChangeFacts, alter as alter_properties, check as check_properties, check_column, owns as owns_property,
};
pub use record::{ChangeBatch, RawOp};
pub(crate) use rows::{ChangeRows, incr_schema, raw_schema};
pub(crate) use stream::{BaseTable, Consumption, Offset, Streams, TableStream};
pub(crate) use travel::Travel;
pub use tso::Tso;
pub(crate) use tso::{LOGICAL_BITS, LOGICAL_MAX};

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wire_tests;
