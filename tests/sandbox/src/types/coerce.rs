//! The type in which values of several types meet.

use super::DorisType;

impl DorisType {
    /// TINYINT to LARGEINT.
    pub fn is_integer(&self) -> bool {
        self.integer_rank().is_some()
    }

    /// Integers, FLOAT, DOUBLE and DECIMAL.
    pub fn is_number(&self) -> bool {
        self.is_integer() || matches!(self, Self::Float | Self::Double | Self::Decimal { .. })
    }

    /// CHAR, VARCHAR and STRING.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Char(_) | Self::Varchar(_) | Self::String)
    }

    /// DATE, DATETIME and TIMESTAMPTZ.
    pub fn is_time(&self) -> bool {
        matches!(self, Self::Date | Self::DateTime(_) | Self::TimestampTz(_))
    }

    /// 0 TINYINT to 4 LARGEINT.
    pub fn integer_rank(&self) -> Option<u8> {
        Some(match self {
            Self::TinyInt => 0,
            Self::SmallInt => 1,
            Self::Int => 2,
            Self::BigInt => 3,
            Self::LargeInt => 4,
            _ => return None,
        })
    }

    /// The integer of a rank.
    pub fn integer_of_rank(rank: u8) -> Self {
        match rank {
            0 => Self::TinyInt,
            1 => Self::SmallInt,
            2 => Self::Int,
            3 => Self::BigInt,
            _ => Self::LargeInt,
        }
    }

    /// Precision and scale of a number as a decimal: an integer counts with the digits of its type.
    pub fn decimal_shape(&self) -> Option<(u8, u8)> {
        Some(match self {
            Self::Boolean => (1, 0),
            Self::TinyInt => (3, 0),
            Self::SmallInt => (5, 0),
            Self::Int => (10, 0),
            Self::BigInt => (20, 0),
            Self::LargeInt => (38, 0),
            Self::Decimal { precision, scale } => (*precision, *scale),
            _ => return None,
        })
    }

    /// Digits of the fraction of a second.
    pub fn fraction(&self) -> u8 {
        match self {
            Self::DateTime(p) | Self::TimestampTz(p) | Self::Time(p) => *p,
            _ => 0,
        }
    }

    /// The type that both convert to; `None` when there is none.
    pub fn common(&self, other: &Self, max_precision: u8) -> Option<Self> {
        if self == other {
            return Some(self.clone());
        }
        Some(match (self, other) {
            (Self::Null, ty) | (ty, Self::Null) => ty.clone(),
            (Self::Boolean, ty) | (ty, Self::Boolean) if ty.is_number() => ty.clone(),
            (a, b) if a.is_integer() && b.is_integer() => {
                Self::integer_of_rank(a.integer_rank()?.max(b.integer_rank()?))
            }
            (a, b) if a.is_number() && b.is_number() => {
                if matches!(a, Self::Float | Self::Double) || matches!(b, Self::Float | Self::Double) {
                    return Some(Self::Double);
                }
                let ((p, s), (q, t)) = (a.decimal_shape()?, b.decimal_shape()?);
                let scale = s.max(t);
                let precision = ((p - s).max(q - t) + scale).min(max_precision);
                Self::Decimal { precision, scale: scale.min(precision) }
            }
            (a, b) if a.is_time() && b.is_time() => {
                let digits = a.fraction().max(b.fraction());
                match (a, b) {
                    (Self::TimestampTz(_), _) | (_, Self::TimestampTz(_)) => Self::TimestampTz(digits),
                    _ => Self::DateTime(digits),
                }
            }
            (Self::Time(p), Self::Time(q)) => Self::Time(*p.max(q)),
            (Self::Json | Self::Variant, b) if !b.is_nested() => self.clone(),
            (a, Self::Json | Self::Variant) if !a.is_nested() => other.clone(),
            (Self::Array(a), Self::Array(b)) => Self::Array(Box::new(a.common(b, max_precision)?)),
            (Self::Map(k, v), Self::Map(l, w)) => {
                Self::Map(Box::new(k.common(l, max_precision)?), Box::new(v.common(w, max_precision)?))
            }
            (Self::Bitmap | Self::Hll, _) | (_, Self::Bitmap | Self::Hll) => return None,
            (a, b) if a.is_nested() || b.is_nested() => return None,
            _ => Self::String,
        })
    }

    /// The type that all convert to; STRING of nothing but NULL.
    pub fn common_of<'a>(types: impl IntoIterator<Item = &'a Self>, max_precision: u8) -> Option<Self> {
        types.into_iter().try_fold(Self::Null, |all, ty| all.common(ty, max_precision))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use crate::types::parse_type;

    #[test]
    fn types_meet() {
        for (a, b, common) in [
            ("tinyint", "int", Some("int")),
            ("bigint", "largeint", Some("largeint")),
            ("int", "decimal(5,2)", Some("decimal(12,2)")),
            ("decimal(38,0)", "decimal(10,9)", Some("decimal(38,9)")),
            ("int", "double", Some("double")),
            ("float", "int", Some("double")),
            ("date", "datetime(3)", Some("datetime(3)")),
            ("int", "string", Some("string")),
            ("date", "string", Some("string")),
            ("array<int>", "array<bigint>", Some("array<bigint>")),
            ("array<int>", "int", None),
            ("bitmap", "string", None),
        ] {
            let common_type = parse_type(a).unwrap().common(&parse_type(b).unwrap(), 38);
            assert_eq!(common_type.map(|ty| ty.to_string()).as_deref(), common, "{a} {b}");
        }
    }
}
