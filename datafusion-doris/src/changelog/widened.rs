//! A read with the columns that tell commits and their rows apart, beside those that were asked for.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};

use super::commits::CommitColumns;
use super::decode::metadata_field;
use super::reader::ChangelogSpec;
use crate::error::{Error, Result};
use crate::options::MetadataColumn;
use crate::types::DorisType;

/// The read, and where things are in it.
pub(super) struct Widened {
    pub spec: ChangelogSpec,
    pub order: CommitColumns,
    pub added: Added,
}

/// How many columns were added, and behind which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Added {
    /// Columns of the table and metadata columns before.
    columns: usize,
    metadata: usize,
    /// Added behind the former and the latter.
    keys: usize,
    tso: usize,
}

impl Added {
    /// Where the column is that was at `index`.
    pub fn place(self, index: usize) -> usize {
        let Self { columns, metadata, keys, tso } = self;
        match index {
            _ if index < columns => index,
            _ if index < columns + metadata => index + keys,
            // The change kind.
            _ => index + keys + tso,
        }
    }
}

impl ChangelogSpec {
    /// This read with all key columns of the table and the commit timestamp.
    ///
    /// # Errors
    /// [`Error::Schema`] for a key column of a type that cannot be read.
    pub(super) fn with_commits(&self) -> Result<Widened> {
        let named = |name: &String| self.columns.iter().position(|column| column == name);
        let keys = self.key.iter().zip(self.key_types.iter());
        let missing: Vec<(&String, &DorisType)> = keys.filter(|(name, _)| named(name).is_none()).collect();
        let tso = self.metadata.iter().position(|column| *column == MetadataColumn::Tso);
        let added = Added {
            columns: self.columns.len(),
            metadata: self.metadata.len(),
            keys: missing.len(),
            tso: usize::from(tso.is_none()),
        };
        let fields = self.schema.fields();
        let mut schema = fields[..added.columns].to_vec();
        for (name, doris_type) in &missing {
            let data_type = doris_type.arrow_type();
            let unread = |reason: String| Error::schema(&self.table, format!("key column '{name}': {reason}"));
            schema.push(Arc::new(Field::new(*name, data_type.map_err(unread)?, false)));
        }
        schema.extend_from_slice(&fields[added.columns..self.kind_index()]);
        if tso.is_none() {
            schema.push(Arc::new(metadata_field(MetadataColumn::Tso)));
        }
        schema.push(Arc::clone(&fields[self.kind_index()]));
        let columns: Arc<[String]> =
            self.columns.iter().cloned().chain(missing.iter().map(|(name, _)| (*name).clone())).collect();
        let more = tso.is_none().then_some(MetadataColumn::Tso);
        let spec = Self {
            types: self
                .types
                .iter()
                .cloned()
                .chain(missing.iter().map(|(_, doris_type)| (*doris_type).clone()))
                .collect(),
            metadata: self.metadata.iter().copied().chain(more).collect(),
            schema: Arc::new(Schema::new(schema)),
            columns,
            ..self.clone()
        };
        let order = CommitColumns {
            key: spec.key.iter().filter_map(|name| spec.columns.iter().position(|column| column == name)).collect(),
            tso: spec.columns.len() + tso.unwrap_or(added.metadata),
            kind: spec.kind_index(),
        };
        Ok(Widened { spec, order, added })
    }
}
