//! `PARTITION BY` and `PARTITION p VALUES ...`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use crate::error::SqlError;
use crate::storage::{Bound, Bounds, Column, KeysType, PartitionKind, PartitionSpec, Partitioning, encode_value};
use crate::types::{DorisType, civil_from_days, days_from_civil};

/// A partition clause as written; values are read once the columns are known.
pub(super) struct Written {
    kind: PartitionKind,
    columns: Vec<String>,
    items: Vec<Item>,
}

/// One value of a tuple.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    Null,
    Max,
}

/// One partition, or a series of them.
pub(super) enum Item {
    LessThan { name: String, upper: Vec<Value> },
    Fixed { name: String, lower: Vec<Value>, upper: Vec<Value> },
    List { name: String, tuples: Vec<Vec<Value>> },
    Series { from: Value, to: Value, step: i64, unit: Option<String> },
}

/// `[AUTO] PARTITION BY RANGE|LIST (cols) (partitions)`, if one stands here.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Option<Written>, SqlError> {
    if cursor.is_word("AUTO") {
        return Err(SqlError::not_served("AUTO PARTITION"));
    }
    if !cursor.eat("PARTITION") {
        return Ok(None);
    }
    cursor.expect("BY")?;
    let kind = if cursor.eat("RANGE") {
        PartitionKind::Range
    } else if cursor.eat("LIST") {
        PartitionKind::List
    } else {
        return Err(SqlError::not_served("PARTITION BY without RANGE or LIST"));
    };
    if matches!(cursor.peek_at(2), Some(Token::LParen)) {
        return Err(SqlError::not_served("partition expressions"));
    }
    let columns = cursor.ident_list()?;
    cursor.expect_token(&Token::LParen)?;
    let mut items = Vec::new();
    while cursor.peek() != Some(&Token::RParen) {
        items.push(item(cursor)?);
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(Some(Written { kind, columns, items }))
}

/// One partition definition.
pub(super) fn item(cursor: &mut Cursor<'_>) -> Result<Item, SqlError> {
    if cursor.eat("FROM") {
        let from = single(cursor)?;
        cursor.expect("TO")?;
        let to = single(cursor)?;
        cursor.expect("INTERVAL")?;
        let step = cursor.number()?.min(i64::MAX as u64) as i64;
        let unit = match cursor.peek() {
            Some(Token::Word(_)) => Some(cursor.ident()?.to_ascii_uppercase()),
            _ => None,
        };
        return Ok(Item::Series { from, to, step, unit });
    }
    cursor.expect("PARTITION")?;
    named(cursor)
}

/// `p VALUES ...`
pub(super) fn named(cursor: &mut Cursor<'_>) -> Result<Item, SqlError> {
    let _ = cursor.eat_all(&["IF", "NOT", "EXISTS"]);
    let name = cursor.ident()?;
    cursor.expect("VALUES")?;
    let item = if cursor.eat_all(&["LESS", "THAN"]) {
        let upper = if cursor.eat("MAXVALUE") { vec![Value::Max] } else { tuple(cursor)? };
        Item::LessThan { name, upper }
    } else if cursor.eat("IN") {
        cursor.expect_token(&Token::LParen)?;
        let mut tuples = Vec::new();
        loop {
            tuples.push(if cursor.peek() == Some(&Token::LParen) { tuple(cursor)? } else { vec![value(cursor)?] });
            if !cursor.eat_token(&Token::Comma) {
                break;
            }
        }
        cursor.expect_token(&Token::RParen)?;
        Item::List { name, tuples }
    } else {
        cursor.expect_token(&Token::LBracket)?;
        let lower = tuple(cursor)?;
        cursor.expect_token(&Token::Comma)?;
        let upper = tuple(cursor)?;
        cursor.expect_token(&Token::RParen)?;
        Item::Fixed { name, lower, upper }
    };
    if cursor.peek() == Some(&Token::LParen) {
        // Properties of a partition: storage, not rows.
        cursor.properties()?;
    }
    Ok(item)
}

fn single(cursor: &mut Cursor<'_>) -> Result<Value, SqlError> {
    match tuple(cursor)?.as_slice() {
        [value] => Ok(value.clone()),
        _ => Err(SqlError::detail("partition column number in multi partition clause must be one")),
    }
}

fn tuple(cursor: &mut Cursor<'_>) -> Result<Vec<Value>, SqlError> {
    cursor.expect_token(&Token::LParen)?;
    let mut out = vec![value(cursor)?];
    while cursor.eat_token(&Token::Comma) {
        out.push(value(cursor)?);
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(out)
}

fn value(cursor: &mut Cursor<'_>) -> Result<Value, SqlError> {
    if cursor.eat("MAXVALUE") {
        return Ok(Value::Max);
    }
    if cursor.eat("NULL") {
        return Ok(Value::Null);
    }
    let negative = cursor.eat_token(&Token::Minus);
    let text = match cursor.peek() {
        Some(Token::SingleQuotedString(text)) => text.clone(),
        Some(Token::Number(text, _)) => text.clone(),
        Some(Token::Word(word))
            if word.value.eq_ignore_ascii_case("TRUE") || word.value.eq_ignore_ascii_case("FALSE") =>
        {
            word.value.to_ascii_lowercase()
        }
        _ => return Err(cursor.unexpected("a partition value")),
    };
    cursor.at += 1;
    Ok(Value::Text(if negative { format!("-{text}") } else { text }))
}

impl Written {
    /// Binds the clause to the columns of a table.
    pub(super) fn bind(
        self,
        columns: &[Column],
        keys_type: KeysType,
        buckets: usize,
    ) -> Result<(Partitioning, Vec<PartitionSpec>), SqlError> {
        let mut types = Vec::with_capacity(self.columns.len());
        for (i, name) in self.columns.iter().enumerate() {
            let Some(column) = columns.iter().find(|c| c.name.eq_ignore_ascii_case(name)) else {
                return Err(SqlError::detail(format!("partition key {name} is not exists")));
            };
            if self.columns[..i].iter().any(|known| known.eq_ignore_ascii_case(name)) {
                return Err(SqlError::detail(format!("Duplicated partition column {name}")));
            }
            if !column.key && keys_type == KeysType::Aggregate {
                return Err(SqlError::detail("The partition column could not be aggregated column"));
            }
            if !column.key && keys_type == KeysType::Unique {
                return Err(SqlError::detail(format!(
                    "Merge-on-Write table's partition column must be KEY column, but {name} is not"
                )));
            }
            let (right, what) = match self.kind {
                PartitionKind::Range => (can_range(&column.ty), "range"),
                PartitionKind::List => (can_list(&column.ty), "list"),
            };
            if !right {
                return Err(SqlError::detail(format!(
                    "Column[{name}] type[{}] cannot be a {what} partition key.",
                    column.ty.primitive_name()
                )));
            }
            types.push(column.ty.clone());
        }
        let partitioning = Partitioning { kind: self.kind, columns: self.columns, types };
        let mut specs: Vec<PartitionSpec> = Vec::new();
        for item in self.items {
            let known: Vec<Bounds> = specs.iter().map(|p| p.bounds.clone()).collect();
            for spec in bind_item(item, &partitioning, &known, buckets)? {
                if specs.iter().any(|p| p.name.eq_ignore_ascii_case(&spec.name)) {
                    return Err(SqlError::coded(1517, format!("Duplicate partition name {}", spec.name)));
                }
                if let Some(other) = spec.bounds.conflict(specs.iter().map(|p| &p.bounds)) {
                    let shown = |bounds: &Bounds| bounds.shown(Some(&partitioning));
                    return Err(SqlError::detail(format!(
                        "Range {} is intersected with range: {}",
                        shown(&spec.bounds),
                        shown(other)
                    )));
                }
                specs.push(spec);
            }
        }
        Ok((partitioning, specs))
    }
}

fn can_range(ty: &DorisType) -> bool {
    matches!(
        ty,
        DorisType::TinyInt
            | DorisType::SmallInt
            | DorisType::Int
            | DorisType::BigInt
            | DorisType::LargeInt
            | DorisType::Date
            | DorisType::DateTime(_)
    )
}

fn can_list(ty: &DorisType) -> bool {
    can_range(ty) || matches!(ty, DorisType::Boolean | DorisType::Char(_) | DorisType::Varchar(_))
}

/// The partitions of a definition; `known` are the bounds of those that exist.
pub(super) fn bind_item(
    item: Item,
    partitioning: &Partitioning,
    known: &[Bounds],
    buckets: usize,
) -> Result<Vec<PartitionSpec>, SqlError> {
    let wrong_kind = || {
        SqlError::detail(match partitioning.kind {
            PartitionKind::List => "You can only use in values to create list partitions",
            PartitionKind::Range => "You can only use fixed or less than values to create range partitions",
        })
    };
    let spec = |name: String, bounds: Bounds| PartitionSpec { name, bounds, buckets };
    Ok(match (item, partitioning.kind) {
        (Item::LessThan { name, upper }, PartitionKind::Range) => {
            let upper = bound_tuple(&upper, partitioning)?;
            let lower = known
                .iter()
                .filter_map(|bounds| match bounds {
                    Bounds::Range { upper: known, .. } if *known <= upper => Some(known.clone()),
                    _ => None,
                })
                .max()
                .unwrap_or_else(|| vec![Bound::Min; partitioning.columns.len()]);
            vec![spec(name, range(lower, upper, partitioning)?)]
        }
        (Item::Fixed { name, lower, upper }, PartitionKind::Range) => {
            let (lower, upper) = (bound_tuple(&lower, partitioning)?, bound_tuple(&upper, partitioning)?);
            vec![spec(name, range(lower, upper, partitioning)?)]
        }
        (Item::Series { from, to, step, unit }, PartitionKind::Range) => {
            series(&from, &to, step, unit.as_deref(), partitioning)?
                .into_iter()
                .map(|(name, lower, upper)| Ok(spec(name, range(vec![lower], vec![upper], partitioning)?)))
                .collect::<Result<_, SqlError>>()?
        }
        (Item::List { name, tuples }, PartitionKind::List) => {
            let tuples = tuples.iter().map(|t| list_tuple(t, partitioning)).collect::<Result<Vec<_>, _>>()?;
            vec![spec(name, Bounds::List(tuples))]
        }
        _ => return Err(wrong_kind()),
    })
}

fn range(lower: Vec<Bound>, upper: Vec<Bound>, partitioning: &Partitioning) -> Result<Bounds, SqlError> {
    if lower >= upper {
        let bounds = Bounds::Range { lower, upper };
        return Err(SqlError::detail(format!(
            "The partition range {} is empty or reversed",
            bounds.shown(Some(partitioning))
        )));
    }
    Ok(Bounds::Range { lower, upper })
}

/// Values that are not written are the least ones.
fn bound_tuple(values: &[Value], partitioning: &Partitioning) -> Result<Vec<Bound>, SqlError> {
    if values.len() > partitioning.columns.len() {
        return Err(SqlError::detail("partition value number is larger than the number of partition columns"));
    }
    let mut out = Vec::with_capacity(partitioning.columns.len());
    for (i, ty) in partitioning.types.iter().enumerate() {
        out.push(match values.get(i) {
            None if values.last().is_some_and(|v| matches!(v, Value::Max)) => Bound::Max,
            None => Bound::Min,
            Some(Value::Max) => Bound::Max,
            Some(Value::Null) => Bound::Min,
            Some(Value::Text(text)) => encode_value(ty, text)?,
        });
    }
    Ok(out)
}

fn list_tuple(values: &[Value], partitioning: &Partitioning) -> Result<Vec<Bound>, SqlError> {
    if values.len() != partitioning.columns.len() {
        return Err(SqlError::detail("partition value number must equal the number of partition columns"));
    }
    values
        .iter()
        .zip(&partitioning.types)
        .map(|(value, ty)| match value {
            Value::Text(text) => encode_value(ty, text),
            Value::Null => Ok(Bound::Min),
            Value::Max => Err(SqlError::detail("MAXVALUE cannot be used in list partitions")),
        })
        .collect()
}

type Named = (String, Bound, Bound);

/// Most partitions of one clause, as `max_multi_partition_num`.
const MAX_SERIES: usize = 4096;

/// `FROM (a) TO (b) INTERVAL n [unit]`
fn series(
    from: &Value,
    to: &Value,
    step: i64,
    unit: Option<&str>,
    partitioning: &Partitioning,
) -> Result<Vec<Named>, SqlError> {
    let ([ty], Value::Text(from), Value::Text(to)) = (partitioning.types.as_slice(), from, to) else {
        return Err(SqlError::detail("multi partition clauses take one column and two values"));
    };
    if step <= 0 {
        return Err(SqlError::detail("Multi partition time interval must be larger than zero."));
    }
    let mut out = Vec::new();
    let mut push = |name: String, lower: &str, upper: &str| -> Result<(), SqlError> {
        if out.len() == MAX_SERIES {
            return Err(SqlError::detail(format!(
                "The number of Multi partitions too much, should not exceed:{MAX_SERIES}"
            )));
        }
        out.push((name, encode_value(ty, lower)?, encode_value(ty, upper)?));
        Ok(())
    };
    match (ty, unit) {
        (DorisType::Date | DorisType::DateTime(_), Some(unit)) => {
            let day = |text: &str| {
                let micros = crate::types::parse_datetime(text, 0, &crate::types::SessionZone::UTC);
                micros
                    .map(|micros| micros.div_euclid(86_400_000_000))
                    .ok_or_else(|| SqlError::detail(format!("Invalid date '{text}' in multi partition clause")))
            };
            let end = day(to)?;
            let mut at = day(from)?;
            while at < end {
                let (year, month, date) = civil_from_days(at);
                let month0 = i64::from(month) - 1;
                let (next, name) = match unit {
                    "DAY" => (at + step, format!("p_{year:04}{month:02}{date:02}")),
                    "WEEK" => (at + 7 * step, format!("p_{year:04}_{:02}", week_of_year(at))),
                    "MONTH" => {
                        let total = year * 12 + month0 + step;
                        let first = days_from_civil(total.div_euclid(12), total.rem_euclid(12) as u32 + 1, date);
                        (first, format!("p_{year:04}{month:02}"))
                    }
                    "YEAR" => (days_from_civil(year + step, month, date), format!("p_{year:04}")),
                    _ => return Err(SqlError::not_served(format!("INTERVAL ... {unit} in partitions"))),
                };
                let next = next.min(end);
                push(name, &crate::types::format_date(at), &crate::types::format_date(next))?;
                at = next;
            }
        }
        (DorisType::Date | DorisType::DateTime(_), None) => {
            return Err(SqlError::detail("multi partition clauses over dates need a unit"));
        }
        (_, None) => {
            let number = |text: &str| {
                text.parse::<i64>()
                    .map_err(|_| SqlError::detail(format!("Invalid integer '{text}' in partition clause")))
            };
            let (mut at, end) = (number(from)?, number(to)?);
            while at < end {
                let next = at.saturating_add(step).min(end);
                push(format!("p_{at}"), &at.to_string(), &next.to_string())?;
                at = next;
            }
        }
        (_, Some(_)) => return Err(SqlError::detail("multi partition clauses over integers take no unit")),
    }
    if out.is_empty() {
        return Err(SqlError::detail("The partition range is empty or reversed"));
    }
    Ok(out)
}

/// Number of the week in its year, from 1.
fn week_of_year(day: i64) -> i64 {
    let (year, ..) = civil_from_days(day);
    (day - days_from_civil(year, 1, 1)) / 7 + 1
}

/// `PARTITION (p, ...)`, `PARTITIONS (p, ...)` or `PARTITION p`, if one stands here.
pub(super) fn names(cursor: &mut Cursor<'_>) -> Result<Option<Vec<String>>, SqlError> {
    if cursor.is_word("TEMPORARY") {
        return Err(SqlError::not_served("temporary partitions"));
    }
    if !cursor.eat("PARTITION") && !cursor.eat("PARTITIONS") {
        return Ok(None);
    }
    if cursor.peek() == Some(&Token::LParen) {
        return cursor.ident_list().map(Some);
    }
    Ok(Some(vec![cursor.ident()?]))
}
