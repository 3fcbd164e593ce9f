//! Which column of Doris stands behind which column of DataFusion.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::ScalarValue;

use crate::changelog::{RowKind, metadata_field};
use crate::error::{Error, Result};
use crate::options::{MetadataColumn, SinkOptions, UpdateMode};
use crate::protocol::DELETE_SIGN;
use crate::scan::check_readable;
use crate::types::{DorisType, KeyModel, TableIdent, TableSchema, compares_alike, doris_type_of};

/// The added column of a changelog or a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KindColumn {
    /// None.
    None,
    /// A changelog's, by this name, after its metadata columns.
    Source(String, Vec<MetadataColumn>),
    /// A target's, by this name.
    Sink(String),
    /// A target's delete sign, as it is declared.
    Sign(Field),
}

impl KindColumn {
    /// The added last column.
    fn field(&self) -> Option<Field> {
        match self {
            KindColumn::None => None,
            KindColumn::Source(name, _) | KindColumn::Sink(name) => Some(Field::new(name, DataType::Utf8, false)),
            // The sink tells of a NULL by its row.
            KindColumn::Sign(field) => Some(field.clone().with_nullable(true)),
        }
    }

    /// The value of a target's added column in rows that are there, which is also its default.
    pub(super) fn of_rows(&self) -> Option<ScalarValue> {
        match self {
            KindColumn::None | KindColumn::Source(..) => None,
            KindColumn::Sink(_) => Some(ScalarValue::Utf8(Some(RowKind::Insert.as_str().into()))),
            KindColumn::Sign(field) => ScalarValue::new_zero(field.data_type()).ok().or(match field.data_type() {
                DataType::Boolean => Some(ScalarValue::Boolean(Some(false))),
                _ => None,
            }),
        }
    }
}

/// The columns of a table in DataFusion, bound to those in Doris.
#[derive(Debug, Clone)]
pub(super) struct BoundSchema {
    table: TableIdent,
    /// The columns, then the metadata of a changelog, then the change kind.
    schema: SchemaRef,
    /// One per column of Doris that is declared.
    bound: Vec<Bound>,
    kind: KindColumn,
}

#[derive(Debug, Clone)]
struct Bound {
    stored: String,
    doris: DorisType,
    /// Conditions mean the same on the declared type and on Doris' own.
    filters_alike: bool,
    /// Only ever written: an input of an expression of a load, not a value of the table.
    input: bool,
}

impl BoundSchema {
    /// Binds the declared columns, or all of the table's when none are declared. A declared column may also be an input
    /// of a load, as `sink` describes it.
    pub fn bind(
        doris: &TableSchema,
        declared: Option<&SchemaRef>,
        kind: KindColumn,
        sink: &SinkOptions,
    ) -> Result<Self> {
        let loads = sink.load_columns()?.unwrap_or_default();
        let sequence = sink.properties.get("function_column.sequence_col");
        let fields = match declared {
            Some(declared) => declared_fields(doris, declared, &kind)?,
            None => doris.arrow_schema().fields().iter().map(|field| field.as_ref().clone()).collect(),
        };
        let changelog = matches!(kind, KindColumn::Source(..));
        // Deletes have their keys only, and rows of a flexible update what they update. The sink looks at rows that are
        // written.
        let loose = kind != KindColumn::None || sink.update_mode()? == UpdateMode::FlexibleColumns;
        let mut bound = Vec::with_capacity(fields.len());
        let mut bound_fields = Vec::with_capacity(fields.len() + 1);
        for field in fields {
            let name = field.name();
            let Some(column) = doris.column(name) else {
                let input = loads.in_body(name) || sequence.is_some_and(|sequence| sequence.eq_ignore_ascii_case(name));
                if input && !changelog {
                    bound.push(Bound::input(name, DorisType::String));
                    bound_fields.push(field);
                    continue;
                }
                let known: Vec<&str> = doris.columns.iter().map(|column| column.name.as_str()).collect();
                return Err(Error::schema(
                    &doris.table,
                    format!("has no column '{}', its columns are {}", field.name(), known.join(", ")),
                ));
            };
            if loads.is_computed(name) && check_readable(&column.doris_type, &field).is_err() {
                bound.push(Bound::input(&column.name, column.doris_type.clone()));
                bound_fields.push(field);
                continue;
            }
            if declared.is_some() {
                check_type(doris, &column.doris_type, &field)?;
            }
            let nullable = (field.is_nullable() && column.nullable) || (loose && !column.key);
            let natural = column.doris_type.arrow_type().ok();
            let same_name = column.name == *field.name();
            let filters_alike = same_name && natural.is_some_and(|natural| compares_alike(&natural, field.data_type()));
            bound.push(Bound {
                stored: column.name.clone(),
                doris: column.doris_type.clone(),
                filters_alike,
                input: false,
            });
            bound_fields.push(field.with_nullable(nullable));
        }
        if let KindColumn::Source(_, metadata) = &kind {
            bound_fields.extend(metadata.iter().map(|column| metadata_field(*column)));
        }
        bound_fields.extend(kind.field());
        let schema = Arc::new(Schema::new(bound_fields));
        Ok(Self { table: doris.table.clone(), schema, bound, kind })
    }

    /// The same columns with a delete sign behind them. Rows that delete have their keys only.
    pub fn with_sign(&self, doris: &TableSchema, sign: Field) -> Self {
        let keys = self.key_columns(doris);
        let fields = self.schema.fields().iter().take(self.columns()).enumerate();
        let mut fields: Vec<Field> = fields
            .map(|(at, field)| field.as_ref().clone().with_nullable(field.is_nullable() || !keys.contains(&at)))
            .collect();
        let kind = KindColumn::Sign(sign);
        fields.extend(kind.field());
        Self { schema: Arc::new(Schema::new(fields)), kind, ..self.clone() }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of columns without the added ones, which follow them.
    pub fn columns(&self) -> usize {
        self.bound.len()
    }

    /// Metadata columns of a changelog.
    pub fn metadata(&self) -> &[MetadataColumn] {
        match &self.kind {
            KindColumn::Source(_, metadata) => metadata,
            KindColumn::None | KindColumn::Sink(_) | KindColumn::Sign(_) => &[],
        }
    }

    pub fn kind(&self) -> &KindColumn {
        &self.kind
    }

    /// Names in Doris of some columns.
    pub fn stored_names(&self, columns: &[usize]) -> Vec<String> {
        columns.iter().map(|index| self.bound[*index].stored.clone()).collect()
    }

    /// Doris types of some columns.
    pub fn types(&self, columns: &[usize]) -> Arc<[DorisType]> {
        columns.iter().map(|index| self.bound[*index].doris.clone()).collect()
    }

    /// What stands behind the column at `index`: its name and type in Doris, and whether conditions mean the same there.
    pub fn stored(&self, index: usize) -> Option<(&str, &DorisType, bool)> {
        let bound = self.bound.get(index).filter(|bound| !bound.input);
        bound.map(|bound| (bound.stored.as_str(), &bound.doris, bound.filters_alike))
    }

    /// True when a condition on the column means the same here and in Doris.
    pub fn filters_alike(&self, name: &str) -> bool {
        self.schema.index_of(name).ok().and_then(|index| self.bound.get(index)).is_some_and(|bound| bound.filters_alike)
    }

    /// Checks that the columns can be read as they are declared.
    pub fn check_readable(&self, columns: &[usize]) -> Result<()> {
        for index in columns {
            let Some(bound) = self.bound.get(*index) else { continue };
            let field = self.schema.field(*index);
            if bound.input {
                let reason = "is an input of 'sink.properties.columns', which is only written; declare the table a \
                              second time to read it";
                return Err(Error::schema(&self.table, format!("column '{}' {reason}", field.name())));
            }
            check_readable(&bound.doris, field)
                .map_err(|reason| Error::schema(&self.table, format!("column '{}': {reason}", field.name())))?;
        }
        Ok(())
    }

    /// Positions of the declared key columns.
    pub fn key_columns(&self, doris: &TableSchema) -> Vec<usize> {
        let is_key = |bound: &Bound| doris.columns.iter().any(|column| column.key && column.name == bound.stored);
        (0..self.bound.len()).filter(|index| is_key(&self.bound[*index])).collect()
    }

    /// Positions of the key columns, when the rows are unique by a key that is declared whole.
    pub fn primary_key(&self, doris: &TableSchema) -> Option<Vec<usize>> {
        if doris.model != Some(KeyModel::Unique) {
            return None;
        }
        let keys = doris.columns.iter().filter(|column| column.key);
        let positions: Option<Vec<usize>> =
            keys.map(|key| self.bound.iter().position(|bound| bound.stored == key.name)).collect();
        positions.filter(|positions| !positions.is_empty())
    }
}

impl Bound {
    fn input(name: &str, doris: DorisType) -> Self {
        Self { stored: name.to_string(), doris, filters_alike: false, input: true }
    }
}

/// The declared columns without the change kind, which may be declared too, as the last one.
fn declared_fields(doris: &TableSchema, declared: &SchemaRef, kind: &KindColumn) -> Result<Vec<Field>> {
    let mut fields: Vec<Field> = declared.fields().iter().map(|field| field.as_ref().clone()).collect();
    let kind = match kind {
        KindColumn::None => return Ok(fields),
        KindColumn::Source(kind, _) | KindColumn::Sink(kind) => kind,
        KindColumn::Sign(sign) => {
            return match fields.pop() {
                Some(last) if last.name() == sign.name() => Ok(fields),
                _ => Err(Error::schema(&doris.table, format!("column {DELETE_SIGN} must be the last one"))),
            };
        }
    };
    match fields.iter().position(|field| field.name() == kind) {
        None => {}
        Some(last) if last + 1 == fields.len() && is_text(fields[last].data_type()) => {
            fields.pop();
        }
        Some(_) => {
            return Err(Error::schema(&doris.table, format!("column '{kind}' must be a VARCHAR and the last one")));
        }
    }
    Ok(fields)
}

/// Refuses a declared type that fits neither for reading nor for writing.
fn check_type(doris: &TableSchema, doris_type: &DorisType, field: &Field) -> Result<()> {
    let Err(reason) = check_readable(doris_type, field) else { return Ok(()) };
    // Finer than microseconds: checked by value when it is written.
    let finer = matches!(
        (doris_type, field.data_type()),
        (DorisType::DateTime(6), DataType::Timestamp(TimeUnit::Nanosecond, None))
            | (DorisType::TimestampTz(6), DataType::Timestamp(TimeUnit::Nanosecond, Some(_)))
    );
    let writable = is_text(field.data_type())
        || finer
        || doris_type_of(field.data_type()).and_then(|declared| declared.arrow_type()).is_ok_and(|declared| {
            doris_type.arrow_type().is_ok_and(|natural| {
                check_readable(&doris_type_of(&declared).unwrap_or(DorisType::String), &Field::new("", natural, true))
                    .is_ok()
            })
        });
    if writable {
        return Ok(());
    }
    Err(Error::schema(&doris.table, format!("column '{}': {reason}", field.name())))
}

pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::types::ColumnSchema;

    fn doris() -> TableSchema {
        TableSchema {
            table: TableIdent::new("db", "t"),
            model: Some(KeyModel::Unique),
            columns: vec![
                ColumnSchema::new("id", DorisType::Int).with_key(true).with_nullable(false),
                ColumnSchema::new("name", DorisType::Varchar(20)).with_nullable(false),
                ColumnSchema::new("born", DorisType::DateTime(0)),
            ],
            properties: BTreeMap::new(),
        }
    }

    fn declared(fields: Vec<Field>) -> SchemaRef {
        Arc::new(Schema::new(fields))
    }

    fn bind(fields: Vec<Field>, kind: KindColumn) -> Result<BoundSchema> {
        BoundSchema::bind(&doris(), Some(&declared(fields)), kind, &SinkOptions::default())
    }

    #[test]
    fn changelog_has_nullable_values_and_the_change_kind_last() {
        let bound = BoundSchema::bind(
            &doris(),
            None,
            KindColumn::Source("__change_kind".into(), vec![]),
            &SinkOptions::default(),
        )
        .unwrap();
        let nullable: Vec<(&str, bool)> =
            bound.schema().fields().iter().map(|field| (field.name().as_str(), field.is_nullable())).collect();
        assert_eq!(nullable, [("id", false), ("name", true), ("born", true), ("__change_kind", false)]);
        assert_eq!(bound.columns(), 3);
    }

    #[test]
    fn snapshot_keeps_the_nullability_of_doris_and_its_key() {
        let bound = BoundSchema::bind(&doris(), None, KindColumn::None, &SinkOptions::default()).unwrap();
        assert!(!bound.schema().field(1).is_nullable());
        assert_eq!(bound.primary_key(&doris()), Some(vec![0]));
        let duplicate = TableSchema { model: Some(KeyModel::Duplicate), ..doris() };
        assert_eq!(bound.primary_key(&duplicate), None);
        let without_key = bind(vec![Field::new("name", DataType::Utf8, true)], KindColumn::None).unwrap();
        assert_eq!(without_key.primary_key(&doris()), None);
    }

    #[test]
    fn declared_columns_may_be_fewer_wider_and_in_another_order() {
        let fields = vec![Field::new("name", DataType::Utf8View, true), Field::new("id", DataType::Int64, true)];
        let bound = bind(fields, KindColumn::None).unwrap();
        assert_eq!(bound.stored_names(&[0, 1]), ["name", "id"]);
        assert!(bound.filters_alike("name") && bound.filters_alike("id"));
        assert!(bound.check_readable(&[0, 1]).is_ok());
    }

    #[test]
    fn unknown_or_conflicting_column_is_refused_by_name() {
        let error = bind(vec![Field::new("nme", DataType::Utf8, true)], KindColumn::None).unwrap_err().to_string();
        assert!(error.contains("no column 'nme'") && error.contains("id, name, born"), "{error}");
        let error = bind(vec![Field::new("born", DataType::Boolean, true)], KindColumn::None).unwrap_err().to_string();
        assert!(error.contains("column 'born'"), "{error}");
    }

    #[test]
    fn type_that_can_only_be_written_is_refused_when_it_is_read() {
        let bound = bind(vec![Field::new("id", DataType::Int8, true)], KindColumn::None).unwrap();
        let error = bound.check_readable(&[0]).unwrap_err().to_string();
        assert!(error.contains("column 'id'"), "{error}");
    }

    #[test]
    fn change_kind_may_be_declared_but_only_last() {
        let kind = KindColumn::Sink("k".into());
        let (id, k) = (Field::new("id", DataType::Int32, true), Field::new("k", DataType::Utf8View, true));
        let bound = bind(vec![id.clone(), k.clone()], kind.clone()).unwrap();
        assert_eq!(bound.schema().fields().len(), 2);
        assert!(bind(vec![k, id], kind).is_err());
    }

    #[test]
    fn delete_sign_is_the_last_column_and_zero_in_rows_that_are_there() {
        for data_type in [DataType::Int8, DataType::Int64, DataType::Boolean] {
            let id = Field::new("id", DataType::Int32, true);
            let sign = Field::new("__doris_delete_sign__", data_type.clone(), true);
            let kind = KindColumn::Sign(sign.clone());
            assert_eq!(kind.of_rows().unwrap().data_type(), data_type);
            let bound = bind(vec![id.clone(), sign.clone()], kind.clone()).unwrap();
            assert_eq!((bound.columns(), bound.schema().fields().len()), (1, 2));
            assert_eq!(bound.schema().field(1).data_type(), &data_type);
            assert!(bind(vec![sign, id], kind).unwrap_err().to_string().contains("last"));
        }
    }

    #[test]
    fn inputs_of_expressions_are_columns_that_are_only_written() {
        let load = |columns: &str| {
            SinkOptions::default().with_properties([("columns".to_string(), columns.to_string())].into()).unwrap()
        };
        let fields = vec![Field::new("id", DataType::Int32, true), Field::new("raw", DataType::Utf8, true)];
        let bind = |fields: &[Field], columns: &str| {
            BoundSchema::bind(&doris(), Some(&declared(fields.to_vec())), KindColumn::None, &load(columns))
        };
        let bound = bind(&fields, "id,raw,name=upper(raw)").unwrap();
        assert!(bound.check_readable(&[0]).is_ok());
        assert!(bound.check_readable(&[1]).unwrap_err().to_string().contains("column 'raw'"));
        assert!(bind(&fields, "id,name").is_err());
        // The type of an input need not fit the column that is computed from it.
        let born = [Field::new("id", DataType::Int32, true), Field::new("born", DataType::Boolean, true)];
        assert!(bind(&born, "id,born").is_err());
        let bound = bind(&born, "id,born,born=if(born,now(),NULL)").unwrap();
        assert!(bound.check_readable(&[1]).is_err());
    }
}
