//! Range and list partitions: their bounds, and which one takes a row.

use std::cmp::Ordering;
use std::collections::HashMap;

use arrow::array::ArrayRef;
use arrow::row::{RowConverter, Rows, SortField};

use crate::error::SqlError;
use crate::types::{ColumnBuilder, DorisType};

/// How a table is partitioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionKind {
    /// `PARTITION BY RANGE`
    Range,
    /// `PARTITION BY LIST`
    List,
}

/// Partition columns of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitioning {
    /// Range or list.
    pub kind: PartitionKind,
    /// Names of the partition columns.
    pub columns: Vec<String>,
    /// Types of the partition columns.
    pub types: Vec<DorisType>,
}

/// One end of a range in one column; the order of the variants is the order of the values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bound {
    /// Below every value; NULL belongs here.
    Min,
    /// A value.
    Value {
        /// Bytes that order as the values do.
        key: Vec<u8>,
        /// Canonical text.
        text: String,
    },
    /// `MAXVALUE`
    Max,
}

/// The rows of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bounds {
    /// Every row: the only partition of a table without partitions.
    All,
    /// Tuples from `lower` (inclusive) to `upper` (exclusive).
    Range {
        /// First tuple.
        lower: Vec<Bound>,
        /// First tuple behind.
        upper: Vec<Bound>,
    },
    /// Tuples that are listed; [`Bound::Min`] stands for NULL.
    List(Vec<Vec<Bound>>),
}

/// A partition to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionSpec {
    /// Name.
    pub name: String,
    /// Its rows.
    pub bounds: Bounds,
    /// Number of buckets.
    pub buckets: usize,
}

/// A partition as SHOW PARTITIONS tells it.
#[derive(Debug, Clone)]
pub(crate) struct PartitionView {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) bounds: Bounds,
    pub(crate) buckets: usize,
    pub(crate) version: u64,
    pub(crate) version_time_ms: i64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

fn converter(ty: &DorisType) -> Result<RowConverter, SqlError> {
    RowConverter::new(vec![SortField::new(ty.storage())]).map_err(SqlError::detail)
}

fn rows_of(column: &ArrayRef) -> Result<Rows, SqlError> {
    RowConverter::new(vec![SortField::new(column.data_type().clone())])
        .and_then(|converter| converter.convert_columns(std::slice::from_ref(column)))
        .map_err(SqlError::detail)
}

/// A bound from its text.
pub(crate) fn encode_value(ty: &DorisType, text: &str) -> Result<Bound, SqlError> {
    let invalid = || {
        let what = ty.to_string().to_uppercase();
        SqlError::detail(format!("Invalid value for the partition key: '{text}' is not a value of type {what}"))
    };
    let mut builder = ColumnBuilder::new(ty, true);
    builder.append_text(text).map_err(|_| invalid())?;
    let array = builder.finish();
    let canonical = crate::types::text_value(&array, 0, ty, crate::types::TextStyle::Mysql).ok_or_else(invalid)?;
    let rows = converter(ty)?.convert_columns(&[array]).map_err(SqlError::detail)?;
    Ok(Bound::Value { key: rows.row(0).as_ref().to_vec(), text: canonical })
}

impl Bound {
    fn text(&self, kind: PartitionKind, ty: &DorisType) -> String {
        match (self, kind) {
            (Self::Value { text, .. }, _) => text.clone(),
            (Self::Min, PartitionKind::List) => "NULL".to_owned(),
            (Self::Min, PartitionKind::Range) => match ty {
                DorisType::Date => "0000-01-01".to_owned(),
                DorisType::DateTime(_) => "0000-01-01 00:00:00".to_owned(),
                DorisType::TinyInt => i8::MIN.to_string(),
                DorisType::SmallInt => i16::MIN.to_string(),
                DorisType::Int => i32::MIN.to_string(),
                DorisType::BigInt => i64::MIN.to_string(),
                DorisType::LargeInt => i128::MIN.to_string(),
                _ => "MIN_VALUE".to_owned(),
            },
            (Self::Max, _) => "MAXVALUE".to_owned(),
        }
    }

    /// Order against a value of a row: its bytes, or NULL.
    fn cmp_value(&self, value: Option<&[u8]>) -> Ordering {
        match (self, value) {
            (Self::Max, _) => Ordering::Greater,
            (Self::Min, None) => Ordering::Equal,
            (Self::Min, Some(_)) => Ordering::Less,
            (Self::Value { .. }, None) => Ordering::Greater,
            (Self::Value { key, .. }, Some(value)) => key.as_slice().cmp(value),
        }
    }
}

fn cmp_tuple(bounds: &[Bound], values: &[Option<&[u8]>]) -> Ordering {
    bounds
        .iter()
        .zip(values)
        .map(|(bound, value)| bound.cmp_value(*value))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

impl Bounds {
    /// The first partition of `others` that shares rows with this one.
    pub fn conflict<'a>(&self, others: impl IntoIterator<Item = &'a Bounds>) -> Option<&'a Bounds> {
        others.into_iter().find(|other| match (self, other) {
            (Self::Range { lower, upper }, Self::Range { lower: l, upper: u }) => lower < u && l < upper,
            (Self::List(values), Self::List(known)) => values.iter().any(|tuple| known.contains(tuple)),
            _ => true,
        })
    }

    /// `Range` of SHOW PARTITIONS.
    pub(crate) fn shown(&self, partitioning: Option<&Partitioning>) -> String {
        let Some(partitioning) = partitioning else { return String::new() };
        let types: Vec<&str> = partitioning.types.iter().map(DorisType::primitive_name).collect();
        let types = types.join(", ");
        let tuple = |bounds: &[Bound]| {
            let texts: Vec<String> =
                bounds.iter().zip(&partitioning.types).map(|(bound, ty)| bound.text(partitioning.kind, ty)).collect();
            format!("[types: [{types}]; keys: [{}]; ", texts.join(", "))
        };
        match self {
            Self::All => String::new(),
            Self::Range { lower, upper } => format!("{}..{}", tuple(lower), &tuple(upper)[1..]) + ")",
            Self::List(values) => {
                let tuples: Vec<String> = values.iter().map(|v| format!("{}]", tuple(v))).collect();
                tuples.join(",")
            }
        }
    }

    /// The VALUES clause.
    pub(crate) fn ddl(&self) -> String {
        let quoted = |bound: &Bound| match bound {
            Bound::Value { text, .. } => format!("'{}'", text.replace('\'', "''")),
            Bound::Min => "NULL".to_owned(),
            Bound::Max => "MAXVALUE".to_owned(),
        };
        let tuple = |bounds: &[Bound]| {
            let texts: Vec<String> = bounds.iter().filter(|b| **b != Bound::Min).map(quoted).collect();
            format!("({})", texts.join(", "))
        };
        match self {
            Self::All => String::new(),
            Self::Range { lower, upper } if lower.iter().all(|b| *b == Bound::Min) => {
                format!("VALUES LESS THAN {}", tuple(upper))
            }
            Self::Range { lower, upper } => format!("VALUES [{}, {})", tuple(lower), tuple(upper)),
            Self::List(values) => {
                let single = values.iter().all(|v| v.len() == 1);
                let tuples: Vec<String> = values
                    .iter()
                    .map(|v| {
                        let inner: Vec<String> = v.iter().map(quoted).collect();
                        if single { inner.join(", ") } else { format!("({})", inner.join(", ")) }
                    })
                    .collect();
                format!("VALUES IN ({})", tuples.join(", "))
            }
        }
    }
}

/// Finds the partition of each row of a batch.
#[derive(Debug)]
pub(super) enum Router {
    /// One partition takes all rows.
    One,
    /// Ranges by lower bound, each with the position of its partition.
    Range { columns: Vec<usize>, ranges: Vec<(Vec<Bound>, Vec<Bound>, usize)> },
    /// Listed tuples.
    List { columns: Vec<usize>, values: HashMap<Vec<Option<Vec<u8>>>, usize> },
}

impl Router {
    /// A router over partitions that stand in the order of `bounds`.
    pub(super) fn new(kind: PartitionKind, columns: Vec<usize>, bounds: &[&Bounds]) -> Self {
        match kind {
            PartitionKind::Range => {
                let mut ranges: Vec<_> = bounds
                    .iter()
                    .enumerate()
                    .filter_map(|(i, b)| match b {
                        Bounds::Range { lower, upper } => Some((lower.clone(), upper.clone(), i)),
                        _ => None,
                    })
                    .collect();
                ranges.sort();
                Self::Range { columns, ranges }
            }
            PartitionKind::List => {
                let mut values = HashMap::new();
                for (i, bounds) in bounds.iter().enumerate() {
                    let Bounds::List(tuples) = bounds else { continue };
                    for tuple in tuples {
                        let key = tuple
                            .iter()
                            .map(|bound| match bound {
                                Bound::Value { key, .. } => Some(key.clone()),
                                Bound::Min | Bound::Max => None,
                            })
                            .collect();
                        values.insert(key, i);
                    }
                }
                Self::List { columns, values }
            }
        }
    }

    /// Position of the partition of each row, `None` where no partition takes it. `Ok(None)`: all go to the first.
    pub(super) fn route(&self, batch: &[ArrayRef]) -> Result<Option<Vec<Option<usize>>>, SqlError> {
        let columns = match self {
            Self::One => return Ok(None),
            Self::Range { columns, .. } | Self::List { columns, .. } => columns,
        };
        let keys = columns.iter().map(|i| rows_of(&batch[*i])).collect::<Result<Vec<_>, _>>()?;
        let rows = batch.first().map_or(0, |column| column.len());
        let mut out = Vec::with_capacity(rows);
        let mut last: Option<usize> = None;
        for row in 0..rows {
            let texts: Vec<_> = keys.iter().map(|rows| rows.row(row)).collect();
            let tuple: Vec<Option<&[u8]>> = columns
                .iter()
                .zip(&texts)
                .map(|(i, key)| if batch[*i].is_null(row) { None } else { Some(key.as_ref()) })
                .collect();
            out.push(match self {
                Self::One => Some(0),
                Self::Range { ranges, .. } => {
                    let takes = |at: usize| {
                        let (lower, upper, _) = &ranges[at];
                        cmp_tuple(lower, &tuple).is_le() && cmp_tuple(upper, &tuple).is_gt()
                    };
                    // Neighbouring rows mostly go the same way.
                    let at = last.filter(|at| takes(*at)).or_else(|| {
                        let behind = ranges.partition_point(|(lower, ..)| cmp_tuple(lower, &tuple).is_le());
                        behind.checked_sub(1).filter(|at| takes(*at))
                    });
                    last = at;
                    at.map(|at| ranges[at].2)
                }
                Self::List { values, .. } => {
                    let key: Vec<Option<Vec<u8>>> = tuple.iter().map(|v| v.map(<[u8]>::to_vec)).collect();
                    values.get(&key).copied()
                }
            });
        }
        Ok(Some(out))
    }
}
