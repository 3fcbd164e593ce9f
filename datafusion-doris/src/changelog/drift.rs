//! What a change of the table's schema means for a read that is running: pure.
//!
//! The columns read are fixed when the table is declared, and each statement names them. So a column that is added is
//! never noticed, one that is dropped or renamed is refused by the server, and one that has another type shows in the
//! planned schema of the next statement, before any row of it is read; one that became text shows with its first value that
//! does not fit.

use arrow::datatypes::{DataType, Field, TimeUnit};

use super::reader::ChangelogSpec;
use crate::error::{Error, Result};
use crate::sql::HiddenColumns;
use crate::types::{DorisType, wire_action};

/// Field metadata in which newer servers name types that share an Arrow type with others.
const TYPE_TAG: &str = "doris_type";

/// Checks that the columns read, as a statement's result plans them, still become what was declared, each value exactly.
///
/// # Errors
/// [`Error::Changelog`] names the first column that does not.
pub(super) fn check_planned(spec: &ChangelogSpec, planned: &[&Field]) -> Result<()> {
    for (index, (field, bound)) in planned.iter().zip(spec.types.iter()).enumerate() {
        let declared = spec.schema.field(index).data_type();
        let fits = match tagged_otherwise(bound, field) {
            Some(tag) => Err(format!("Doris type {tag} is not {bound}")),
            // Exact as text, which is right for a statement whose columns nobody declared; here it is another column.
            None if *bound == DorisType::String && field.data_type().is_numeric() => {
                Err(format!("{} is not {bound}", field.data_type()))
            }
            None => wire_action(&as_sent(bound, field.data_type()), field.data_type(), declared).map(|_| ()),
        };
        if let Err(reason) = fits {
            let name = spec.columns.get(index).map_or("?", String::as_str);
            return Err(Error::Changelog {
                table: spec.table.to_string(),
                reason: format!(
                    "column '{name}' was {bound} when the table was declared, and its type was changed ({reason}): \
                     declare the table again, with a type that holds the new values, and start the read anew"
                ),
            });
        }
    }
    Ok(())
}

/// The type that the server names for a column, when it is another one than `bound` whose values would be read wrongly.
fn tagged_otherwise<'a>(bound: &DorisType, field: &'a Field) -> Option<&'a str> {
    let tag = field.metadata().get(TYPE_TAG)?;
    let collides =
        tag.eq_ignore_ascii_case("IPV4") || matches!(bound, DorisType::LargeInt | DorisType::Ipv4 | DorisType::Ipv6);
    (collides && !tag.eq_ignore_ascii_case(&bound.to_string())).then_some(tag.as_str())
}

/// `bound`, with as many digits after the second as what is sent may have: an older declaration must not cut them.
fn as_sent(bound: &DorisType, wire: &DataType) -> DorisType {
    match (bound, wire) {
        (DorisType::DateTime(digits), DataType::Timestamp(unit, _)) => DorisType::DateTime(longer(*digits, *unit)),
        (DorisType::TimestampTz(digits), DataType::Timestamp(unit, _)) => {
            DorisType::TimestampTz(longer(*digits, *unit))
        }
        (DorisType::Array(element), DataType::List(field)) => {
            DorisType::Array(Box::new(as_sent(element, field.data_type())))
        }
        (DorisType::Map(key, value), DataType::Map(entries, _)) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => DorisType::Map(
                Box::new(as_sent(key, fields[0].data_type())),
                Box::new(as_sent(value, fields[1].data_type())),
            ),
            _ => bound.clone(),
        },
        (DorisType::Struct(fields), DataType::Struct(sent)) if fields.len() == sent.len() => {
            let fields = fields.iter().zip(sent.iter());
            DorisType::Struct(fields.map(|((name, ty), sent)| (name.clone(), as_sent(ty, sent.data_type()))).collect())
        }
        _ => bound.clone(),
    }
}

/// A unit is sent for up to three digits: a column of `digits` comes in the unit that holds them, no finer.
fn longer(digits: u8, unit: TimeUnit) -> u8 {
    let of_unit = match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    if of_unit > digits.div_ceil(3) * 3 { of_unit } else { digits }
}

/// Says what a server's refusal of a statement over the table means, when it means a change of its schema.
pub(super) fn explain_refusal(spec: &ChangelogSpec, hidden: Option<&HiddenColumns>, message: &str) -> Option<Error> {
    let error = |reason: String| Some(Error::Changelog { table: spec.table.to_string(), reason });
    if let Some(unknown) = unknown_column(message) {
        if let Some(column) = spec.columns.iter().chain(spec.key.iter()).find(|column| names(unknown, column)) {
            return error(format!(
                "column '{column}' is read but was dropped or renamed in doris ({message}): declare the table again with \
                 the columns that are left, and start the read anew"
            ));
        }
        let hidden = hidden.filter(|hidden| [&hidden.tso, &hidden.lsn, &hidden.op].iter().any(|h| names(unknown, h)));
        return hidden.and_then(|_| {
            error(format!(
                "the hidden column '{unknown}' does not exist ({message}): correct 'source.changelog.hidden-columns', or \
                 leave it out and start the read anew"
            ))
        });
    }
    let lower = message.to_ascii_lowercase();
    let gone = lower.contains("unknown table") || (lower.contains("does not exist") && lower.contains("table ["));
    if gone {
        return error(format!(
            "it was dropped or renamed ({message}): declare the table again under its name, and start the read anew"
        ));
    }
    None
}

/// The column that `message` calls unknown, as it is written there: `Unknown column 'c' in 'table list'`, with other
/// quotes, qualified, or followed by the clause, as versions differ.
fn unknown_column(message: &str) -> Option<&str> {
    const WORDS: &str = "unknown column";
    let at = message.to_ascii_lowercase().find(WORDS)?;
    let rest = message[at + WORDS.len()..].trim_start_matches([' ', ':', '[', '(']);
    let quote = rest.chars().next()?;
    let name = match quote {
        '\'' | '"' => rest[1..].split(quote).next()?,
        _ => rest.split([' ', ',', ']', ')', ';']).next()?,
    };
    (!name.is_empty()).then_some(name)
}

/// True when `written` names `column`: quoted or not, and behind a table and a database or not.
fn names(written: &str, column: &str) -> bool {
    let plain: String = written.chars().filter(|c| *c != '`').collect();
    let column: String = column.chars().filter(|c| *c != '`').collect();
    let start = plain.len().checked_sub(column.len());
    start.is_some_and(|start| {
        plain.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(&column))
            && (start == 0 || plain.as_bytes().get(start - 1) == Some(&b'.'))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::changelog::read_schema;
    use crate::options::OnExpired;
    use crate::sql::IncrementType;
    use crate::types::TableIdent;

    fn spec(columns: Vec<(&str, DorisType, DataType)>) -> ChangelogSpec {
        let fields = columns.iter().map(|(name, _, declared)| Field::new(*name, declared.clone(), true)).collect();
        ChangelogSpec {
            table: TableIdent::new("db", "t"),
            columns: columns.iter().map(|(name, _, _)| (*name).to_string()).collect(),
            types: columns.iter().map(|(_, doris, _)| doris.clone()).collect(),
            key: Arc::new(["id".to_string()]),
            key_types: Arc::new([DorisType::BigInt]),
            hidden: None,
            metadata: Arc::new([]),
            schema: read_schema(fields, &[], "__change_kind"),
            snapshot: false,
            exact_snapshot: false,
            start: None,
            end: None,
            increment_type: IncrementType::Detail,
            poll_interval: Duration::from_secs(10),
            max_window: Duration::from_secs(3600),
            visible_wait_timeout: Duration::from_secs(300),
            time_to_live: None,
            on_expired: OnExpired::Fail,
        }
    }

    fn time(unit: TimeUnit) -> DataType {
        DataType::Timestamp(unit, None)
    }

    #[test]
    fn column_may_get_another_type_as_long_as_the_declared_one_holds_its_values() {
        use DataType::{Decimal128, Float32, Float64, Int32, Int64, Utf8};
        use TimeUnit::{Microsecond, Millisecond, Second};
        for (bound, declared, sent, fits) in [
            (DorisType::Int, Int32, Int32, true),
            (DorisType::Int, Int64, Int64, true),
            (DorisType::Int, Int32, Int64, false),
            // An FE that answers a statement itself gives every column as text: each value shows whether it fits.
            (DorisType::BigInt, Int64, Utf8, true),
            (DorisType::Varchar(20), Utf8, Utf8, true),
            (DorisType::Varchar(20), Utf8, Int32, false),
            (DorisType::Float, Float64, Float64, true),
            (DorisType::Float, Float32, Float64, false),
            (DorisType::Decimal(10, 2), Decimal128(10, 2), Decimal128(12, 2), false),
            (DorisType::Decimal(10, 2), Decimal128(14, 2), Decimal128(12, 2), true),
            (DorisType::DateTime(0), time(Second), time(Second), true),
            (DorisType::DateTime(3), time(Millisecond), time(Microsecond), false),
            (DorisType::DateTime(2), time(Microsecond), time(Microsecond), true),
            (DorisType::DateTime(6), time(Microsecond), time(Second), true),
        ] {
            let spec = spec(vec![("id", DorisType::Int, Int32), ("c", bound.clone(), declared.clone())]);
            let planned = [Field::new("id", Int32, true), Field::new("c", sent.clone(), true)];
            let checked = check_planned(&spec, &planned.each_ref());
            assert_eq!(checked.is_ok(), fits, "{bound} declared as {declared} comes as {sent}");
            if let Err(error) = checked {
                let text = error.to_string();
                for part in ["db.t", "column 'c'", &format!("was {bound}"), "declare the table again"] {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
        }
    }

    #[test]
    fn digits_of_nested_times_are_not_cut() {
        let list = |unit| DataType::List(Arc::new(Field::new("item", time(unit), true)));
        let bound = DorisType::Array(Box::new(DorisType::DateTime(0)));
        let spec = spec(vec![("c", bound, list(TimeUnit::Second))]);
        assert!(check_planned(&spec, &[&Field::new("c", list(TimeUnit::Second), true)]).is_ok());
        assert!(check_planned(&spec, &[&Field::new("c", list(TimeUnit::Millisecond), true)]).is_err());
    }

    #[test]
    fn types_that_share_an_arrow_type_are_told_by_their_tag() {
        let tagged = |data_type: DataType, tag: &str| {
            Field::new("c", data_type, true).with_metadata([(TYPE_TAG.to_string(), tag.to_string())].into())
        };
        let number = spec(vec![("c", DorisType::Int, DataType::Int32)]);
        assert!(check_planned(&number, &[&tagged(DataType::Int32, "IPV4")]).is_err());
        let address = spec(vec![("c", DorisType::Ipv4, DataType::Utf8)]);
        assert!(check_planned(&address, &[&tagged(DataType::Int32, "IPV4")]).is_ok());
        assert!(check_planned(&address, &[&Field::new("c", DataType::Int32, true)]).is_ok());
        let text = spec(vec![("c", DorisType::String, DataType::Utf8)]);
        assert!(check_planned(&text, &[&tagged(DataType::Utf8, "JSON")]).is_ok());
    }

    #[test]
    fn refusals_that_mean_another_schema_name_the_column() {
        let spec = spec(vec![("id", DorisType::Int, DataType::Int32), ("Name", DorisType::String, DataType::Utf8)]);
        for message in [
            "Unknown column 'Name' in 'table list'",
            "errCode = 2, detailMessage = Unknown column 'name' in 'table list' in PROJECT clause(line 1, pos 9)",
            "errCode = 2, detailMessage = Unknown column 'db.t.Name' in 'field list'",
            "unknown column `Name` in 't'",
            "Unknown column '`t`.`Name`' in 'SORT clause'",
            "Unknown column: Name",
        ] {
            let error = explain_refusal(&spec, None, message).unwrap().to_string();
            assert!(error.contains("db.t") && error.contains("column 'Name'") && error.contains(message), "{error}");
        }
        let key = explain_refusal(&spec, None, "Unknown column 'id' in 'table list'").unwrap().to_string();
        assert!(key.contains("column 'id'"), "{key}");
        for message in ["Unknown column 'surname' in 'table list'", "Unknown column", "syntax error at 'Name'"] {
            assert!(explain_refusal(&spec, None, message).is_none(), "{message}");
        }
    }

    #[test]
    fn hidden_column_that_is_unknown_is_explained_once_it_is_settled() {
        let spec = spec(vec![("id", DorisType::Int, DataType::Int32)]);
        let message = "Unknown column '__DORIS_BINLOG_TSO__' in 'table list'";
        assert!(explain_refusal(&spec, None, message).is_none(), "a probe tells by it");
        let error = explain_refusal(&spec, Some(&HiddenColumns::binlog()), message).unwrap().to_string();
        assert!(error.contains("'source.changelog.hidden-columns'"), "{error}");
    }

    #[test]
    fn table_that_is_gone_is_told() {
        let spec = spec(vec![("id", DorisType::Int, DataType::Int32)]);
        for message in ["Table [t] does not exist in database [db].", "Unknown table 't'"] {
            let error = explain_refusal(&spec, None, message).unwrap().to_string();
            assert!(error.contains("dropped or renamed"), "{error}");
        }
        assert!(explain_refusal(&spec, None, "Database [db] does not exist.").is_none());
    }
}
