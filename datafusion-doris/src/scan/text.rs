//! Texts of the MySQL protocol as Arrow arrays, of the types that Arrow Flight SQL sends.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BinaryBuilder, BooleanArray, Decimal128Array, Decimal256Array, ListArray, MapArray,
    PrimitiveArray, RecordBatchOptions, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    ArrowPrimitiveType, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema,
};
use arrow::record_batch::RecordBatch;

use crate::error::{Error, Result};
use crate::types::{DorisType, no_utf8, unscaled};

/// The longest time whose neighbours a float tells apart.
const EXACT_MICROS: i64 = 1 << 53;
const EXACT: CastOptions<'static> =
    CastOptions { safe: false, format_options: arrow::util::display::FormatOptions::new() };

/// Checks that texts tell every value of a column of this type.
///
/// # Errors
/// Advice, for nested types with texts in them: Doris does not escape the quotes around those.
pub(super) fn check_readable(doris: &DorisType) -> Result<(), String> {
    let inner: Vec<&DorisType> = match doris {
        DorisType::Array(element) => vec![element],
        DorisType::Map(key, value) => vec![key, value],
        DorisType::Struct(fields) => fields.iter().map(|(_, field)| field).collect(),
        _ => return Ok(()),
    };
    for inner in inner {
        match inner {
            DorisType::Char(_) | DorisType::Varchar(_) | DorisType::String | DorisType::Json | DorisType::Variant => {
                return Err(format!(
                    "the texts inside of {doris} come without escapes, so that they cannot be told apart; read it over \
                     arrow flight, leave the column out, or read a view that gives it as json text"
                ));
            }
            nested => check_readable(nested)?,
        }
    }
    Ok(())
}

/// A batch of texts (Binary columns) as columns of the Doris types `types`.
///
/// # Errors
/// [`Error::Schema`] that names the column whose text is no value of its type.
pub(super) fn typed(table: &str, types: &[DorisType], batch: &RecordBatch) -> Result<RecordBatch> {
    let invalid = |column: usize, reason: String| {
        let name = batch.schema_ref().field(column).name().clone();
        Error::schema(table, format!("column '{name}': {reason}"))
    };
    if types.len() != batch.num_columns() {
        let (wanted, sent) = (types.len(), batch.num_columns());
        return Err(Error::schema(table, format!("doris sent {sent} columns where {wanted} were asked for")));
    }
    let mut columns = Vec::with_capacity(types.len());
    let mut fields = Vec::with_capacity(types.len());
    for (index, (doris, column)) in types.iter().zip(batch.columns()).enumerate() {
        let Some(texts) = column.as_any().downcast_ref::<BinaryArray>() else {
            return Err(invalid(index, "its values are no texts".into()));
        };
        let array = array_of(doris, texts).map_err(|reason| invalid(index, reason))?;
        fields.push(Field::new(batch.schema_ref().field(index).name(), array.data_type().clone(), true));
        columns.push(array);
    }
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &rows)?)
}

type Typed<T> = Result<T, String>;

/// Texts as values of `doris`; some types stay texts, as they are on the wire of some servers.
///
/// # Errors
/// The reason, for a text that is no value of the type.
pub(super) fn array_of(doris: &DorisType, texts: &BinaryArray) -> Typed<ArrayRef> {
    Ok(match doris {
        DorisType::Boolean => Arc::new(
            each(texts, |text| match text {
                "1" | "true" => Some(true),
                "0" | "false" => Some(false),
                _ => None,
            })?
            .into_iter()
            .collect::<BooleanArray>(),
        ),
        DorisType::TinyInt => numbers::<Int8Type>(texts)?,
        DorisType::SmallInt => numbers::<Int16Type>(texts)?,
        DorisType::Int => numbers::<Int32Type>(texts)?,
        DorisType::BigInt => numbers::<Int64Type>(texts)?,
        DorisType::Float => numbers::<Float32Type>(texts)?,
        DorisType::Double => numbers::<Float64Type>(texts)?,
        DorisType::Time(_) => {
            let micros = each(texts, micros_of_time)?;
            Arc::new(micros.into_iter().collect::<PrimitiveArray<Float64Type>>())
        }
        DorisType::Decimal(precision, scale) => decimals(texts, *precision, *scale)?,
        DorisType::TimestampTz(_) | DorisType::TimestampNs => {
            let target = doris.arrow_type()?;
            cast_with_options(&strings(texts)?, &target, &EXACT).map_err(|error| error.to_string())?
        }
        // Texts on the wire of some servers too.
        DorisType::LargeInt
        | DorisType::Date
        | DorisType::DateTime(_)
        | DorisType::Char(_)
        | DorisType::Varchar(_)
        | DorisType::String
        | DorisType::Json
        | DorisType::Variant
        | DorisType::Ipv4
        | DorisType::Ipv6
        | DorisType::Uuid => strings(texts)?,
        DorisType::VarBinary => Arc::new(texts.clone()),
        DorisType::Opaque(name) => return Err(format!("type {name} has no readable values")),
        DorisType::Unknown(text) => return Err(format!("type {text} is not known")),
        DorisType::Array(_) | DorisType::Map(..) | DorisType::Struct(_) => {
            let nodes = each(texts, |text| Parser::new(text).whole(doris))?;
            nested(doris, nodes)?
        }
    })
}

/// Each text by `read`, whose `None` is an error.
fn each<'a, T>(texts: &'a BinaryArray, read: impl Fn(&'a str) -> Option<T>) -> Typed<Vec<Option<T>>> {
    texts
        .iter()
        .map(|bytes| {
            let Some(bytes) = bytes else { return Ok(None) };
            let text = std::str::from_utf8(bytes).map_err(|_| no_utf8(bytes))?;
            read(text).map(Some).ok_or_else(|| format!("'{}' is no value of its type", excerpt(text)))
        })
        .collect()
}

fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

fn numbers<T: ArrowPrimitiveType>(texts: &BinaryArray) -> Typed<ArrayRef>
where
    T::Native: std::str::FromStr,
{
    let values = each(texts, |text| text.trim().parse::<T::Native>().ok())?;
    Ok(Arc::new(values.into_iter().collect::<PrimitiveArray<T>>()))
}

/// Digit for digit; a text with more digits than the type has is none of its values.
fn decimals(texts: &BinaryArray, precision: u8, scale: u8) -> Typed<ArrayRef> {
    let values = each(texts, |text| unscaled(text, precision, scale))?;
    // A scale is at most 76.
    let of_scale = scale as i8;
    if precision <= 38 {
        let narrow: Option<Vec<Option<i128>>> =
            values.into_iter().map(|value| value.map_or(Some(None), |value| value.to_i128().map(Some))).collect();
        let narrow: Decimal128Array = narrow.ok_or("a decimal of 38 digits has 128 bits")?.into_iter().collect();
        return Ok(Arc::new(narrow.with_precision_and_scale(precision, of_scale).map_err(|error| error.to_string())?));
    }
    let wide: Decimal256Array = values.into_iter().collect();
    Ok(Arc::new(wide.with_precision_and_scale(precision, of_scale).map_err(|error| error.to_string())?))
}

fn strings(texts: &BinaryArray) -> Typed<ArrayRef> {
    Ok(Arc::new(each(texts, Some)?.into_iter().collect::<StringArray>()))
}

/// `[-]HH:MM:SS[.ffffff]` in microseconds; `None` for more than a float holds to the microsecond, too.
fn micros_of_time(text: &str) -> Option<f64> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
    let mut parts = text.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    // A sign stands before all of it only.
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<i64>().ok())?;
    let micros = digits(format!("{fraction:0<6}").get(..6)?)?;
    let of_minutes = digits(hours)?.checked_mul(60)?.checked_add(digits(minutes)?)?;
    let of_seconds = of_minutes.checked_mul(60)?.checked_add(digits(seconds)?)?;
    let total = of_seconds.checked_mul(1_000_000)?.checked_add(micros).filter(|total| *total <= EXACT_MICROS)?;
    parts.next().is_none().then_some(if negative { -total as f64 } else { total as f64 })
}

/// One value of a nested type.
enum Node<'a> {
    Null,
    Scalar(&'a str),
    /// Elements, fields, or keys and values in turn.
    Nodes(Vec<Node<'a>>),
}

/// Reads `[1, null]`, `{1:2}`, `{"a":1, "b":"x"}`: values that are no numbers stand in quotes.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn whole(mut self, doris: &DorisType) -> Option<Node<'a>> {
        let node = self.value(doris)?;
        self.rest.trim().is_empty().then_some(node)
    }

    fn eat(&mut self, symbol: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// What stands between `open` and `close`, separated by commas.
    fn list(&mut self, open: char, close: char, mut one: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        if !self.eat(open) {
            return None;
        }
        if self.eat(close) {
            return Some(());
        }
        loop {
            one(self)?;
            if self.eat(close) {
                return Some(());
            }
            if !self.eat(',') {
                return None;
            }
        }
    }

    fn value(&mut self, doris: &DorisType) -> Option<Node<'a>> {
        self.rest = self.rest.trim_start();
        let mut nodes = Vec::new();
        match doris {
            _ if self.is_null() => {
                self.rest = &self.rest["null".len()..];
                return Some(Node::Null);
            }
            DorisType::Array(element) => self.list('[', ']', |parser| {
                nodes.push(parser.value(element)?);
                Some(())
            })?,
            DorisType::Map(key, value) => self.list('{', '}', |parser| {
                nodes.push(parser.value(key)?);
                if !parser.eat(':') {
                    return None;
                }
                nodes.push(parser.value(value)?);
                Some(())
            })?,
            DorisType::Struct(fields) => {
                let mut fields = fields.iter();
                self.list('{', '}', |parser| {
                    let (name, field) = fields.next()?;
                    let shown = parser.scalar()?;
                    if !shown.eq_ignore_ascii_case(name) || !parser.eat(':') {
                        return None;
                    }
                    nodes.push(parser.value(field)?);
                    Some(())
                })?;
                fields.next().is_none().then_some(())?;
            }
            _ => return self.scalar().map(Node::Scalar),
        }
        Some(Node::Nodes(nodes))
    }

    fn is_null(&self) -> bool {
        let rest = self.rest.get(.."null".len()).filter(|word| word.eq_ignore_ascii_case("null"));
        rest.is_some_and(|word| !self.rest[word.len()..].starts_with(|c: char| c.is_alphanumeric()))
    }

    /// A quoted text, or one up to the next sign of the syntax.
    fn scalar(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start();
        if let Some(quoted) = self.rest.strip_prefix('"') {
            let (text, rest) = quoted.split_once('"')?;
            self.rest = rest;
            return Some(text);
        }
        let end = self.rest.find([',', ']', '}', ':']).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(text.trim()).filter(|text| !text.is_empty())
    }
}

fn nested(doris: &DorisType, nodes: Vec<Option<Node<'_>>>) -> Typed<ArrayRef> {
    match doris {
        DorisType::Array(element) => {
            let (offsets, nulls, inner) = flatten(parts(doris, nodes)?);
            let values = nested(element, inner)?;
            let field = Field::new(Field::LIST_FIELD_DEFAULT_NAME, values.data_type().clone(), true);
            let list = ListArray::try_new(Arc::new(field), offsets, values, Some(nulls));
            Ok(Arc::new(list.map_err(|error| error.to_string())?))
        }
        DorisType::Map(key, value) => {
            let (offsets, nulls, inner) = flatten(parts(doris, nodes)?);
            let offsets = OffsetBuffer::new(offsets.iter().map(|offset| offset / 2).collect());
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for (index, node) in inner.into_iter().enumerate() {
                if index % 2 == 0 { keys.push(node) } else { values.push(node) }
            }
            let (keys, values) = (nested(key, keys)?, nested(value, values)?);
            let fields = vec![
                Field::new("key", keys.data_type().clone(), false),
                Field::new("value", values.data_type().clone(), true),
            ];
            let pairs = StructArray::try_new(fields.into(), vec![keys, values], None);
            let pairs = pairs.map_err(|error| error.to_string())?;
            let entries = Field::new("entries", pairs.data_type().clone(), false);
            let map = MapArray::try_new(Arc::new(entries), offsets, pairs, Some(nulls), false);
            Ok(Arc::new(map.map_err(|error| error.to_string())?))
        }
        DorisType::Struct(fields) => {
            let rows = parts(doris, nodes)?;
            let nulls: NullBuffer = rows.iter().map(Option::is_some).collect();
            let mut columns: Vec<Vec<Option<Node<'_>>>> = fields.iter().map(|_| Vec::new()).collect();
            for row in rows {
                let mut values = row.map(Vec::into_iter);
                for column in &mut columns {
                    column.push(values.as_mut().and_then(Iterator::next));
                }
            }
            let arrays = fields.iter().zip(columns).map(|((_, field), column)| nested(field, column));
            let arrays = arrays.collect::<Typed<Vec<_>>>()?;
            let named = fields.iter().zip(&arrays);
            let named: Vec<Field> =
                named.map(|((name, _), array)| Field::new(name, array.data_type().clone(), true)).collect();
            let row = StructArray::try_new(named.into(), arrays, Some(nulls));
            Ok(Arc::new(row.map_err(|error| error.to_string())?))
        }
        scalar => {
            let mut texts = BinaryBuilder::new();
            for node in nodes {
                match node {
                    None | Some(Node::Null) => texts.append_null(),
                    Some(Node::Scalar(text)) => texts.append_value(text),
                    Some(Node::Nodes(_)) => return Err(format!("a nested value where {scalar} is")),
                }
            }
            array_of(scalar, &texts.finish())
        }
    }
}

/// The parts of each value; `None` for NULL.
fn parts<'a>(doris: &DorisType, nodes: Vec<Option<Node<'a>>>) -> Typed<Vec<Option<Vec<Node<'a>>>>> {
    let parts = nodes.into_iter().map(|node| match node {
        None | Some(Node::Null) => Ok(None),
        Some(Node::Nodes(nodes)) => Ok(Some(nodes)),
        Some(Node::Scalar(text)) => Err(format!("'{}' is no value of {doris}", excerpt(text))),
    });
    parts.collect()
}

/// Offsets and validity of lists, and their elements one after the other.
fn flatten<'a>(lists: Vec<Option<Vec<Node<'a>>>>) -> (OffsetBuffer<i32>, NullBuffer, Vec<Option<Node<'a>>>) {
    let nulls = lists.iter().map(Option::is_some).collect();
    let offsets = OffsetBuffer::from_lengths(lists.iter().map(|list| list.as_ref().map_or(0, Vec::len)));
    (offsets, nulls, lists.into_iter().flatten().flatten().map(Some).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::datatypes::DataType;
    use arrow::util::display::array_value_to_string;

    use super::*;
    use crate::scan::Conformer;

    /// The values that a reader sees, by the type of the column.
    fn read(doris: &str, texts: &[Option<&str>]) -> Result<Vec<String>> {
        let doris = DorisType::parse(doris).unwrap();
        let texts: BinaryArray = texts.iter().map(|text| text.map(str::as_bytes)).collect();
        let field = Field::new("c", DataType::Binary, true);
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(texts)]).unwrap();
        let wire = typed("db.t", std::slice::from_ref(&doris), &batch)?;
        let target = Arc::new(Schema::new(vec![Field::new("c", doris.arrow_type().unwrap(), true)]));
        let read = Conformer::new("db.t", Arc::clone(&target), vec![doris].into()).conform(&wire)?;
        assert_eq!(read.schema(), target);
        let column = read.column(0);
        Ok((0..read.num_rows())
            .map(|row| match column.is_null(row) {
                true => "NULL".to_string(),
                false => array_value_to_string(column, row).unwrap(),
            })
            .collect())
    }

    #[test]
    fn texts_of_every_type_become_the_values_that_flight_sends() {
        let cases: &[(&str, &str, &str)] = &[
            ("boolean", "1", "true"),
            ("tinyint", "-128", "-128"),
            ("smallint", "32767", "32767"),
            ("int", "-2147483648", "-2147483648"),
            ("bigint", "9223372036854775807", "9223372036854775807"),
            ("largeint", "-170141183460469231731687303715884105728", "-170141183460469231731687303715884105728"),
            ("float", "1.5", "1.5"),
            ("double", "1.7976931348623157e+308", "1.7976931348623157e308"),
            ("double", "NaN", "NaN"),
            ("double", "-Infinity", "-inf"),
            ("decimal(10,2)", "-12345678.90", "-12345678.90"),
            (
                "decimal(76,3)",
                "12345678901234567890123456789012345678901.125",
                "12345678901234567890123456789012345678901.125",
            ),
            ("char(3)", "a", "a"),
            ("varchar(9)", "", ""),
            ("string", "中 \\ ' \"", "中 \\ ' \""),
            ("date", "9999-12-31", "9999-12-31"),
            ("datetime", "2024-02-29 23:59:59", "2024-02-29T23:59:59"),
            ("datetime(6)", "0001-01-01 00:00:00.000001", "0001-01-01T00:00:00.000001"),
            ("timestamptz(3)", "2024-01-01 08:00:00.250 +00:00", "2024-01-01T08:00:00.250Z"),
            ("time(6)", "-12:30:00.5", "-45000500000.0"),
            ("time(6)", "838:59:59.999999", "3020399999999.0"),
            ("json", "{\"a\":[1, null]}", "{\"a\":[1, null]}"),
            ("variant", "1", "1"),
            ("ipv4", "255.0.0.1", "255.0.0.1"),
            ("ipv6", "::1", "::1"),
            ("array<int>", "[1, null, -3]", "[1, , -3]"),
            ("array<array<double>>", "[[1.5], [], null]", "[[1.5], [], ]"),
            ("array<date>", "[\"2024-01-01\"]", "[2024-01-01]"),
            ("map<int,boolean>", "{1:1, 2:null}", "{1: true, 2: }"),
            ("struct<a:int,b:decimal(4,1)>", "{\"a\":1, \"b\":-2.5}", "{a: 1, b: -2.5}"),
            ("struct<a:array<ipv4>,b:largeint>", "{\"a\":[\"10.0.0.1\"], \"b\":null}", "{a: [10.0.0.1], b: }"),
        ];
        for (doris, text, expected) in cases {
            let found = read(doris, &[Some(text), None]).unwrap_or_else(|error| panic!("{doris} {text}: {error}"));
            assert_eq!(found, [expected.to_string(), "NULL".to_string()], "{doris} {text}");
        }
    }

    #[test]
    fn times_are_exact_up_to_the_last_that_a_float_holds() {
        for (text, micros) in [
            ("2501999:47:34.740992", Some(EXACT_MICROS as f64)),
            ("-2501999:47:34.740992", Some(-EXACT_MICROS as f64)),
            ("2501999:47:34.740993", None),
            ("2562047788:00:54.775808", None),
            ("-00:00:00.000001", Some(-1.0)),
        ] {
            assert_eq!(micros_of_time(text), micros, "{text}");
        }
    }

    #[test]
    fn empty_and_null_lists_are_told_apart() {
        let found = read("array<int>", &[Some("[]"), None, Some("[null]"), Some("[2,3]")]).unwrap();
        assert_eq!(found, ["[]", "NULL", "[]", "[2, 3]"].map(String::from));
    }

    #[test]
    fn text_that_is_no_value_is_an_error_that_names_the_column() {
        for (doris, text) in [
            ("int", "x"),
            ("tinyint", "128"),
            ("boolean", "2"),
            ("decimal(3,1)", "1234.5"),
            ("decimal(5,1)", "1.25"),
            ("decimal(40,1)", "1e3"),
            ("time", "2562047788:00:00"),
            ("time", "9223372036854775807:59:59"),
            ("time", "-9223372036854775807:00:00"),
            ("time", "99999999999999999999:00:00"),
            ("time", "00:9223372036854775807:00"),
            ("time", "00:00:9223372036854775807"),
            ("time(6)", "2501999:47:34.740993"),
            ("time", "01:-5:00"),
            ("time", "--01:00:00"),
            ("time", "01:00"),
            ("time", "01:00:00:00"),
            ("array<int>", "[1, 2"),
            ("array<int>", "[1] 2"),
            ("map<int,int>", "{1}"),
            ("struct<a:int>", "{\"b\":1}"),
            ("struct<a:int,b:int>", "{\"a\":1}"),
        ] {
            let error = read(doris, &[Some(text)]).expect_err(text).to_string();
            assert!(error.contains("column 'c'"), "{doris}: {error}");
        }
        let bytes: BinaryArray = [Some(&[0xff_u8][..])].into_iter().collect();
        assert!(array_of(&DorisType::String, &bytes).unwrap_err().contains("utf-8"));
    }

    #[test]
    fn nested_texts_are_refused_because_their_quotes_are_not_escaped() {
        for (doris, readable) in [
            ("array<int>", true),
            ("map<int,struct<a:date>>", true),
            ("string", true),
            ("array<string>", false),
            ("map<varchar(3),int>", false),
            ("struct<a:array<json>>", false),
        ] {
            assert_eq!(check_readable(&DorisType::parse(doris).unwrap()).is_ok(), readable, "{doris}");
        }
    }
}
