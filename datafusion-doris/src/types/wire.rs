//! How a column that arrives in one Arrow type becomes the type the reader was promised.
//!
//! Server versions differ in what they send for one Doris type. The decision is made here, once per stream and without
//! data; the reader executes it. Every action either keeps each value or fails on it: none cuts a value silently.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};

use super::DorisType;

/// What to do with one column of the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireAction {
    /// Nothing, the types are equal.
    Keep,
    /// Arrow's cast with `safe: false`; chosen only where no value changes its meaning.
    Cast,
    /// A column of type Null: all values are NULL of the target type.
    Nulls,
    /// Timestamp with zone: the wall clock of the instant in this zone, zone dropped, then the target's unit.
    LocalWallClock {
        /// Zone of the wire type, an IANA name or an offset.
        zone: Arc<str>,
    },
    /// Decimal text to a decimal without fraction or an integer; a value that does not fit fails.
    TextToDecimal,
    /// The text of the MySQL protocol to the type's own Arrow type; a text that is no value of it fails.
    TextToValue(DorisType),
    /// One after the other, by way of a type between.
    Chain(Box<WireAction>, DataType, Box<WireAction>),
    /// 16 bytes, little-endian two's complement, to a decimal without fraction or an integer; a value that does not fit
    /// fails.
    Int128ToDecimal,
    /// 16 bytes, little-endian two's complement, to decimal text.
    Int128ToText,
    /// `YYYY-MM-DD` to Date32.
    TextToDate,
    /// `YYYY-MM-DD HH:MM:SS[.ffffff]` to a naive timestamp.
    TextToTimestamp,
    /// 32 bits, read as unsigned, to dotted text.
    BitsToIpv4Text,
    /// 32 bits, read as unsigned, to an integer that holds them.
    BitsToInteger,
    /// Dotted text to an integer: the address as a number, which sorts as addresses do.
    Ipv4TextToInteger,
    /// 16 bytes, big-endian, to the text of a UUID.
    UuidBytesToText,
    /// A struct of `metadata` and `value`, the binary form of VARIANT, to JSON text.
    VariantToText,
    /// IPv6 text, or the address as one decimal number, to a decimal: the number, which sorts as addresses do.
    Ipv6TextToDecimal,
    /// IPv6 text; text without a colon is the address as one decimal number.
    Ipv6Text,
    /// A list: the action for its elements.
    List(Box<WireAction>),
    /// A map: the actions for its keys and values.
    Map(Box<WireAction>, Box<WireAction>),
    /// A struct: one action per field, by position.
    Struct(Vec<WireAction>),
}

/// Decides for a column of Doris type `doris` that arrives as `wire` and was promised as `target`.
///
/// # Errors
/// The reason, when the values cannot be converted exactly.
pub fn wire_action(doris: &DorisType, wire: &DataType, target: &DataType) -> Result<WireAction, String> {
    let refuse = || Err(format!("Doris type {doris} arrived as {wire}, which cannot become {target} exactly"));
    if let DataType::Dictionary(_, values) = wire {
        // Casting the dictionary away is only exact together with an action that is itself a cast.
        return match wire_action(doris, values, target)? {
            WireAction::Keep | WireAction::Cast => Ok(WireAction::Cast),
            _ => refuse(),
        };
    }
    match (doris, wire, target) {
        // Never read, whatever its column is declared as.
        (DorisType::Opaque(_) | DorisType::Unknown(_), ..) => doris.arrow_type().and_then(|_| refuse()),
        (_, DataType::Null, _) => Ok(WireAction::Nulls),
        (DorisType::LargeInt, wire, target) if is_text(wire) && holds_largeint_checked(target) => {
            Ok(WireAction::TextToDecimal)
        }
        (DorisType::LargeInt, DataType::FixedSizeBinary(16), target) if holds_largeint_checked(target) => {
            Ok(WireAction::Int128ToDecimal)
        }
        // What was converted once: Arrow's own cast fails on a value that does not fit.
        (DorisType::LargeInt, DataType::Decimal256(39, 0), target)
            if *wire != *target && (is_text(target) || holds_largeint_checked(target)) =>
        {
            Ok(WireAction::Cast)
        }
        (DorisType::LargeInt, DataType::FixedSizeBinary(16), DataType::Utf8) => Ok(WireAction::Int128ToText),
        (DorisType::Ipv4, DataType::Int32 | DataType::UInt32, DataType::Utf8) => Ok(WireAction::BitsToIpv4Text),
        (
            DorisType::Ipv4,
            DataType::Int32 | DataType::UInt32,
            DataType::UInt32 | DataType::Int64 | DataType::UInt64,
        ) => Ok(WireAction::BitsToInteger),
        (DorisType::Ipv4, wire, DataType::UInt32 | DataType::Int64 | DataType::UInt64) if is_text(wire) => {
            Ok(WireAction::Ipv4TextToInteger)
        }
        (DorisType::Uuid, DataType::FixedSizeBinary(16), DataType::Utf8) => Ok(WireAction::UuidBytesToText),
        (DorisType::Variant, DataType::Struct(fields), DataType::Utf8) if is_variant(fields) => {
            Ok(WireAction::VariantToText)
        }
        (DorisType::Variant, DataType::Struct(fields), _) if !is_variant(fields) => Err(format!(
            "VARIANT arrived as {wire}, which is neither text nor a struct of metadata and value: read it by \
             CAST(… AS STRING) in doris_query or a view"
        )),
        (DorisType::Ipv6, wire, DataType::Utf8) if is_text(wire) => Ok(WireAction::Ipv6Text),
        (DorisType::Ipv6, wire, target) if is_text(wire) && is_text(target) => {
            Ok(WireAction::Chain(Box::new(WireAction::Ipv6Text), DataType::Utf8, Box::new(WireAction::Cast)))
        }
        (DorisType::Ipv6, wire, DataType::Decimal256(precision, 0)) if is_text(wire) && *precision >= IPV6_DIGITS => {
            Ok(WireAction::Ipv6TextToDecimal)
        }
        (DorisType::Date, wire, DataType::Date32) if is_text(wire) => Ok(WireAction::TextToDate),
        (DorisType::DateTime(_), wire, DataType::Timestamp(_, None)) if is_text(wire) => {
            Ok(WireAction::TextToTimestamp)
        }
        (DorisType::DateTime(digits), DataType::Timestamp(unit, zone), DataType::Timestamp(target_unit, None)) => {
            if !holds(*target_unit, *unit, *digits) {
                return refuse();
            }
            Ok(match zone {
                Some(zone) => WireAction::LocalWallClock { zone: Arc::clone(zone) },
                None if unit == target_unit => WireAction::Keep,
                None => WireAction::Cast,
            })
        }
        (
            DorisType::TimestampTz(digits),
            DataType::Timestamp(unit, Some(zone)),
            DataType::Timestamp(target_unit, Some(target_zone)),
        ) => match (unit == target_unit, zone == target_zone) {
            (true, true) => Ok(WireAction::Keep),
            _ if holds(*target_unit, *unit, *digits) => Ok(WireAction::Cast),
            _ => refuse(),
        },
        (DorisType::Array(element), DataType::List(from), DataType::List(to)) => {
            let action = wire_action(element, from.data_type(), to.data_type())?;
            let same_field = from == to;
            Ok(if action == WireAction::Keep && same_field { action } else { WireAction::List(Box::new(action)) })
        }
        (DorisType::Map(key, value), DataType::Map(from, _), DataType::Map(to, _)) => {
            match (from.data_type(), to.data_type()) {
                (DataType::Struct(from_fields), DataType::Struct(to_fields))
                    if from_fields.len() == 2 && to_fields.len() == 2 =>
                {
                    let keys = wire_action(key, from_fields[0].data_type(), to_fields[0].data_type())?;
                    let values = wire_action(value, from_fields[1].data_type(), to_fields[1].data_type())?;
                    let same = wire == target && keys == WireAction::Keep && values == WireAction::Keep;
                    Ok(if same { WireAction::Keep } else { WireAction::Map(Box::new(keys), Box::new(values)) })
                }
                _ => refuse(),
            }
        }
        (DorisType::Struct(fields), DataType::Struct(from), DataType::Struct(to)) => {
            if fields.len() != from.len() || from.len() != to.len() {
                return refuse();
            }
            let actions = fields
                .iter()
                .zip(from.iter().zip(to.iter()))
                .map(|((_, field), (from, to))| wire_action(field, from.data_type(), to.data_type()))
                .collect::<Result<Vec<_>, _>>()?;
            let same = wire == target && actions.iter().all(|action| *action == WireAction::Keep);
            Ok(if same { WireAction::Keep } else { WireAction::Struct(actions) })
        }
        (_, wire, target) if wire == target => Ok(WireAction::Keep),
        // The FE answers some queries itself, among them counts and constants, and gives every column as text.
        (doris, wire, target) if is_text(wire) && comes_as_text(doris) => {
            let natural = doris.arrow_type()?;
            if natural == *target {
                return Ok(WireAction::TextToValue(doris.clone()));
            }
            let (first, then) = (wire_action(doris, wire, &natural)?, wire_action(doris, &natural, target)?);
            Ok(WireAction::Chain(Box::new(first), natural, Box::new(then)))
        }
        (doris, wire, target) if cast_is_exact(doris, wire, target) => Ok(WireAction::Cast),
        // Texts are made in one Arrow form and cast to the others.
        (doris, wire, DataType::LargeUtf8 | DataType::Utf8View) => match wire_action(doris, wire, &DataType::Utf8)? {
            WireAction::Keep => Ok(WireAction::Cast),
            first => Ok(WireAction::Chain(Box::new(first), DataType::Utf8, Box::new(WireAction::Cast))),
        },
        _ => refuse(),
    }
}

/// Digits of the greatest address.
const IPV6_DIGITS: u8 = 39;

/// `struct<metadata, value>` of bytes; not one with further columns, as values may be cut into.
fn is_variant(fields: &arrow::datatypes::Fields) -> bool {
    let binary =
        |data_type: &DataType| matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView);
    fields.len() == 2
        && fields.iter().all(|field| binary(field.data_type()))
        && ["metadata", "value"].iter().all(|name| fields.find(name).is_some())
}

/// Types without nested values that are no texts here.
fn comes_as_text(doris: &DorisType) -> bool {
    matches!(
        doris,
        DorisType::Boolean
            | DorisType::TinyInt
            | DorisType::SmallInt
            | DorisType::Int
            | DorisType::BigInt
            | DorisType::LargeInt
            | DorisType::Float
            | DorisType::Double
            | DorisType::Decimal(..)
            | DorisType::Date
            | DorisType::DateTime(_)
            | DorisType::TimestampTz(_)
            | DorisType::TimestampNs
            | DorisType::Time(_)
    )
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Types for whole numbers to which a LARGEINT is converted value by value.
fn holds_largeint_checked(target: &DataType) -> bool {
    matches!(target, DataType::Decimal128(_, 0) | DataType::Decimal256(_, 0) | DataType::Int64 | DataType::UInt64)
}

/// Digits after the second of a unit.
fn unit_digits(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Whether `target` holds every value that a column of `digits` fractional digits sends in `wire`.
fn holds(target: TimeUnit, wire: TimeUnit, digits: u8) -> bool {
    unit_digits(target) >= unit_digits(wire).min(digits)
}

/// Casts that keep every value (or fail on it), for types that need no knowledge of Doris.
fn cast_is_exact(doris: &DorisType, wire: &DataType, target: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256, Float32, Float64, Int8,
        Int16, Int32, Int64, LargeBinary, Timestamp,
    };
    let digits = |data_type: &DataType| match data_type {
        Int8 => Some(3),
        Int16 => Some(5),
        Int32 => Some(10),
        Int64 => Some(19),
        _ => None,
    };
    let decimal = |data_type: &DataType| match data_type {
        Decimal32(precision, scale)
        | Decimal64(precision, scale)
        | Decimal128(precision, scale)
        | Decimal256(precision, scale) => Some((i16::from(*precision), i16::from(*scale))),
        _ => None,
    };
    match (wire, target) {
        (wire, target) if is_text(wire) && is_text(target) => true,
        (Int8, Int16 | Int32 | Int64) | (Int16, Int32 | Int64) | (Int32, Int64) => *doris != DorisType::Ipv4,
        (Int8 | Int16 | Int32 | Int64, Decimal256(39, 0)) => *doris == DorisType::LargeInt,
        (Float32, Float64) => true,
        (Int8 | Int16, Float32 | Float64) | (Int32, Float64) => *doris != DorisType::Ipv4,
        // Midnight. Beyond the range of a finer unit the cast fails.
        (Date32, Timestamp(_, None)) => *doris == DorisType::Date,
        (Binary | LargeBinary | BinaryView, Binary | LargeBinary | BinaryView) => *doris == DorisType::VarBinary,
        (Date64, Date32) => true,
        // A statement whose columns were told as text, by an FE that knew that it gives no rows.
        (Int8 | Int16 | Int32 | Int64 | Decimal128(..) | Decimal256(..), target) if is_text(target) => {
            *doris == DorisType::String
        }
        (wire, target) => match (
            decimal(wire).or(digits(wire).filter(|_| *doris != DorisType::Ipv4).map(|digits| (digits, 0))),
            decimal(target),
        ) {
            // Every number of so many digits is one of the integer.
            (Some((precision, 0)), None) if decimal(wire).is_some() => {
                digits(target).is_some_and(|digits| precision < digits)
            }
            // A smaller scale would round.
            (Some((precision, scale)), Some((target_precision, target_scale))) => {
                target_scale >= scale && target_precision - target_scale >= precision - scale
            }
            _ => false,
        },
    }
}
