//! What the build calls the feature: properties, hidden columns, the table function.

use arrow::datatypes::FieldRef;

use crate::engine::Profile;
use crate::types::DorisType;

/// Names before and after row binlog was renamed to changelog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Names {
    /// Before the first dot of the properties; the table function too.
    pub(crate) stem: &'static str,
    /// In refusals of DDL.
    pub(crate) feature: &'static str,
    /// First word of the text for an offset that expired.
    subject: &'static str,
}

impl Names {
    pub(crate) fn of(profile: Profile) -> Self {
        if profile == Profile::V5_0Changelog {
            Self { stem: "changelog", feature: "changelog", subject: "Changelog" }
        } else {
            Self { stem: "binlog", feature: "binlog<Row>", subject: "Row binlog" }
        }
    }

    /// `binlog.<suffix>`
    pub(crate) fn property(self, suffix: &str) -> String {
        format!("{}.{suffix}", self.stem)
    }

    /// The text for a start or a moment whose records are gone.
    pub(crate) fn expired(self) -> String {
        format!("{} offset has expired according to {}", self.subject, self.property("ttl_seconds"))
    }

    /// A hidden column of change records: `TSO`, `LSN` or `OP`.
    fn column(self, suffix: &str) -> String {
        format!("__DORIS_{}_{suffix}__", self.stem.to_ascii_uppercase())
    }
}

/// Prefix and suffix of the columns of the before image, in raw records.
pub(crate) const BEFORE: (&str, &str) = ("__BEFORE__", "__");

/// The three hidden columns of a profile: TSO, LSN, OP.
#[derive(Debug, Clone)]
pub(crate) struct ChangeColumns {
    pub(crate) fields: [FieldRef; 3],
}

impl ChangeColumns {
    pub(crate) fn of(profile: Profile) -> Self {
        let names = Names::of(profile);
        let lsn = if profile == Profile::V5_0Changelog { DorisType::BigInt } else { DorisType::LargeInt };
        Self {
            fields: [
                DorisType::BigInt.storage_field(&names.column("TSO"), false),
                lsn.storage_field(&names.column("LSN"), false),
                DorisType::BigInt.storage_field(&names.column("OP"), false),
            ],
        }
    }
}
