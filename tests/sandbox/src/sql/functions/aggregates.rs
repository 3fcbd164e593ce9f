//! The aggregate functions.

use arrow::datatypes::i256;

use super::aggregate::{AggDef, Fold};
use super::bitmap::read as read_bitmap;
use super::gather::{
    Rows, at_fraction, collect, extreme_by, group_concat, intersect_count, numbers, percentile, percentile_array,
    rows_state,
};
use super::row::{Outcome, Types};
use crate::types::bitmap::Bitmap;
use crate::types::hll::Hll;
use crate::types::{DorisType, Value, rescale, ten_to};

type TypeResult = Result<DorisType, String>;

fn numeric(t: &Types<'_>, name: &str) -> Result<(), String> {
    let ty = &t.args[0];
    let fine = ty.is_number() || ty.is_text() || matches!(ty, DorisType::Boolean | DorisType::Null);
    if fine { Ok(()) } else { Err(format!("{name} requires a numeric parameter: {name}({ty})")) }
}

/// Sum of the integers is BIGINT, of decimals has all digits, the rest is DOUBLE.
fn sum_type(t: &Types<'_>) -> TypeResult {
    numeric(t, "sum")?;
    Ok(match &t.args[0] {
        DorisType::LargeInt => DorisType::LargeInt,
        DorisType::Decimal { precision, scale } => {
            let precision = if *precision > 38 { 76 } else { t.env.max_precision().max(38) };
            DorisType::Decimal { precision, scale: *scale }
        }
        ty if ty.is_integer() || *ty == DorisType::Boolean => DorisType::BigInt,
        _ => DorisType::Double,
    })
}

fn avg_type(t: &Types<'_>) -> TypeResult {
    numeric(t, "avg")?;
    Ok(match &t.args[0] {
        DorisType::Decimal { precision, scale } => {
            let precision = if *precision > 38 { 76 } else { t.env.max_precision().max(38) };
            DorisType::Decimal { precision, scale: (*scale).max(4) }
        }
        _ => DorisType::Double,
    })
}

fn as_number(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => Value::Int(i128::from(*flag)),
        Value::Text(own) => own.trim().parse().map_or(Value::Null, Value::Float),
        other => other.clone(),
    }
}

fn plus(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Null, b) => b.clone(),
        (a, Value::Null) => a.clone(),
        (Value::Int(a), Value::Int(b)) => Value::Int(a.wrapping_add(*b)),
        (Value::Decimal(a, s), Value::Decimal(b, t)) if s == t => Value::Decimal(a.wrapping_add(*b), *s),
        (a, b) => Value::Float(a.as_f64().unwrap_or(0.0) + b.as_f64().unwrap_or(0.0)),
    }
}

#[derive(Debug)]
struct Sum {
    total: Value,
    ret: DorisType,
}

impl Sum {
    fn take(&mut self, value: &Value) {
        let value = match (&self.ret, as_number(value)) {
            (DorisType::Double, value) => value.as_f64().map_or(Value::Null, Value::Float),
            (_, value) => value,
        };
        let mut total = plus(&self.total, &value);
        if self.ret == DorisType::BigInt
            && let Value::Int(v) = total
        {
            total = Value::Int(i128::from(v as i64));
        }
        self.total = total;
    }
}

impl Fold for Sum {
    fn add(&mut self, row: &[Value]) {
        self.take(&row[0]);
    }

    fn save(&self) -> Vec<Value> {
        vec![self.total.clone()]
    }

    fn load(&mut self, state: &[Value]) {
        self.take(&state[0]);
    }

    fn finish(&self) -> Outcome {
        if let (Value::Decimal(v, _), DorisType::Decimal { precision, .. }) = (&self.total, &self.ret)
            && *precision < 76
            && (*v >= ten_to(*precision) || *v <= ten_to(*precision).wrapping_neg())
        {
            return Err(format!("[ARITHMETIC_OVERFLOW_ERRROR]Arithmetic overflow of sum in {}", self.ret));
        }
        Ok(self.total.clone())
    }
}

#[derive(Debug)]
struct Avg {
    total: Value,
    count: i128,
    ret: DorisType,
}

impl Fold for Avg {
    fn add(&mut self, row: &[Value]) {
        let value = match (&self.ret, as_number(&row[0])) {
            (DorisType::Double, value) => value.as_f64().map_or(Value::Null, Value::Float),
            (_, value) => value,
        };
        if !value.is_null() {
            self.total = plus(&self.total, &value);
            self.count += 1;
        }
    }

    fn save(&self) -> Vec<Value> {
        vec![self.total.clone(), Value::Int(self.count)]
    }

    fn load(&mut self, state: &[Value]) {
        self.total = plus(&self.total, &state[0]);
        if let Value::Int(count) = state[1] {
            self.count += count;
        }
    }

    fn finish(&self) -> Outcome {
        if self.count == 0 {
            return Ok(Value::Null);
        }
        Ok(match (&self.total, &self.ret) {
            // The quotient is cut, not rounded.
            (Value::Decimal(v, from), DorisType::Decimal { scale, .. }) => {
                let quotient = rescale(*v, *from, *scale).and_then(|v| v.checked_div(i256::from_i128(self.count)));
                quotient.map_or(Value::Null, |v| Value::Decimal(v, *scale))
            }
            (total, _) => total.as_f64().map_or(Value::Null, |v| Value::Float(v / self.count as f64)),
        })
    }
}

/// The state of an average keeps the digits of the sum.
fn avg_state(args: &[DorisType], _: &DorisType) -> Vec<DorisType> {
    let sum = match &args[0] {
        DorisType::Decimal { scale, .. } => DorisType::Decimal { precision: 76, scale: *scale },
        _ => DorisType::Double,
    };
    vec![sum, DorisType::BigInt]
}

/// Keeps one value; which one, a function decides.
#[derive(Debug)]
struct Pick {
    kept: Value,
    replaces: fn(&Value, &Value) -> bool,
}

impl Fold for Pick {
    fn add(&mut self, row: &[Value]) {
        if !row[0].is_null() && (self.kept.is_null() || (self.replaces)(&row[0], &self.kept)) {
            self.kept = row[0].clone();
        }
    }

    fn save(&self) -> Vec<Value> {
        vec![self.kept.clone()]
    }

    fn load(&mut self, state: &[Value]) {
        self.add(state);
    }

    fn finish(&self) -> Outcome {
        Ok(self.kept.clone())
    }
}

fn ordered_type(t: &Types<'_>) -> TypeResult {
    match &t.args[0] {
        ty if ty.is_nested()
            || matches!(ty, DorisType::Bitmap | DorisType::Hll | DorisType::Json | DorisType::Variant) =>
        {
            Err(format!("min/max function doesn't support type {}", ty.to_string().to_uppercase()))
        }
        ty => Ok(ty.clone()),
    }
}

/// Bit operations over integers.
#[derive(Debug)]
struct Bits {
    bits: Option<i128>,
    combine: fn(i128, i128) -> i128,
}

impl Fold for Bits {
    fn add(&mut self, row: &[Value]) {
        if let Value::Int(v) = as_number(&row[0]) {
            self.bits = Some(self.bits.map_or(v, |bits| (self.combine)(bits, v)));
        }
    }

    fn save(&self) -> Vec<Value> {
        vec![self.bits.map_or(Value::Null, Value::Int)]
    }

    fn load(&mut self, state: &[Value]) {
        self.add(state);
    }

    fn finish(&self) -> Outcome {
        Ok(self.bits.map_or(Value::Null, Value::Int))
    }
}

fn bits_type(t: &Types<'_>) -> TypeResult {
    match &t.args[0] {
        DorisType::Boolean | DorisType::Null => Ok(DorisType::TinyInt),
        ty if ty.is_integer() => Ok(ty.clone()),
        ty => Err(format!("group_bit functions require an integer parameter, not {ty}")),
    }
}

/// Sets of numbers: the union or the intersection, and what is made of it.
#[derive(Debug)]
struct Sets {
    set: Option<Bitmap>,
    intersects: bool,
    counts: bool,
}

impl Sets {
    fn take(&mut self, other: &Bitmap) {
        match &mut self.set {
            None => self.set = Some(other.clone()),
            Some(set) if self.intersects => set.intersect_with(other),
            Some(set) => set.union_with(other),
        }
    }
}

impl Fold for Sets {
    fn add(&mut self, row: &[Value]) {
        match &row[0] {
            Value::Bytes(bytes) => self.take(&read_bitmap(bytes)),
            Value::Int(v) => {
                if let Ok(v) = u64::try_from(*v) {
                    match &mut self.set {
                        Some(set) if !self.intersects => set.insert(v),
                        _ => self.take(&Bitmap::from_iter([v])),
                    }
                }
            }
            _ => {}
        }
    }

    fn save(&self) -> Vec<Value> {
        vec![self.set.as_ref().map_or(Value::Null, |set| Value::Bytes(set.to_bytes()))]
    }

    fn load(&mut self, state: &[Value]) {
        self.add(state);
    }

    fn finish(&self) -> Outcome {
        let set = self.set.clone().unwrap_or_default();
        Ok(if self.counts { Value::Int(i128::from(set.cardinality())) } else { Value::Bytes(set.to_bytes()) })
    }
}

/// Sketches, of sketches or of values.
#[derive(Debug, Default)]
struct Sketches {
    sketch: Hll,
    counts: bool,
    of_values: bool,
}

impl Fold for Sketches {
    fn add(&mut self, row: &[Value]) {
        match &row[0] {
            Value::Text(own) if self.of_values => self.sketch.add(own.as_bytes()),
            _ => self.load(row),
        }
    }

    fn save(&self) -> Vec<Value> {
        vec![Value::Bytes(self.sketch.to_bytes())]
    }

    fn load(&mut self, state: &[Value]) {
        if let Value::Bytes(bytes) = &state[0]
            && let Some(other) = Hll::from_bytes(bytes)
        {
            self.sketch.union_with(&other);
        }
    }

    fn finish(&self) -> Outcome {
        Ok(if self.counts {
            Value::Int(i128::from(self.sketch.cardinality()))
        } else {
            Value::Bytes(self.sketch.to_bytes())
        })
    }
}

fn array_type(t: &Types<'_>) -> TypeResult {
    Ok(DorisType::Array(Box::new(t.args[0].clone())))
}

fn text_type(_: &Types<'_>) -> TypeResult {
    Ok(DorisType::String)
}

fn double_type(_: &Types<'_>) -> TypeResult {
    Ok(DorisType::Double)
}

fn bigint_type(_: &Types<'_>) -> TypeResult {
    Ok(DorisType::BigInt)
}

fn bitmap_type(t: &Types<'_>) -> TypeResult {
    match &t.args[0] {
        DorisType::Bitmap | DorisType::Null => Ok(DorisType::Bitmap),
        ty => Err(format!("bitmap aggregate functions need a BITMAP parameter, not {ty}")),
    }
}

fn hll_type(t: &Types<'_>) -> TypeResult {
    match &t.args[0] {
        DorisType::Hll | DorisType::Null => Ok(DorisType::Hll),
        ty => Err(format!("hll aggregate functions need an HLL parameter, not {ty}")),
    }
}

fn result_state(_: &[DorisType], ret: &DorisType) -> Vec<DorisType> {
    vec![ret.clone()]
}

macro_rules! rows {
    ($names:literal, $args:literal, $nulls:literal, $ret:expr, $finish:expr) => {
        AggDef {
            names: $names,
            args: $args,
            sees_null: $nulls,
            ret: $ret,
            state: rows_state,
            make: |args, _| Box::new(Rows { rows: Vec::new(), types: args.to_vec(), finish: $finish }),
        }
    };
}

macro_rules! sets {
    ($names:literal, $args:literal, $ret:expr, $intersects:literal, $counts:literal) => {
        AggDef {
            names: $names,
            args: $args,
            sees_null: false,
            ret: $ret,
            state: |_, _| vec![DorisType::Bitmap],
            make: |_, _| Box::new(Sets { set: None, intersects: $intersects, counts: $counts }),
        }
    };
}

macro_rules! sketches {
    ($names:literal, $args:literal, $ret:expr, $counts:literal, $of_values:literal) => {
        AggDef {
            names: $names,
            args: $args,
            sees_null: false,
            ret: $ret,
            state: |_, _| vec![DorisType::Hll],
            make: |_, _| Box::new(Sketches { sketch: Hll::new(), counts: $counts, of_values: $of_values }),
        }
    };
}

macro_rules! pick {
    ($names:literal, $replaces:expr) => {
        AggDef {
            names: $names,
            args: "a",
            sees_null: false,
            ret: ordered_type,
            state: result_state,
            make: |_, _| Box::new(Pick { kept: Value::Null, replaces: $replaces }),
        }
    };
}

macro_rules! bits {
    ($names:literal, $combine:expr) => {
        AggDef {
            names: $names,
            args: "a",
            sees_null: false,
            ret: bits_type,
            state: result_state,
            make: |_, _| Box::new(Bits { bits: None, combine: $combine }),
        }
    };
}

pub(crate) fn defs() -> Vec<AggDef> {
    vec![
        AggDef {
            names: "sum",
            args: "a",
            sees_null: false,
            ret: sum_type,
            state: result_state,
            make: |_, ret| Box::new(Sum { total: Value::Null, ret: ret.clone() }),
        },
        AggDef {
            names: "avg",
            args: "a",
            sees_null: false,
            ret: avg_type,
            state: avg_state,
            make: |_, ret| Box::new(Avg { total: Value::Null, count: 0, ret: ret.clone() }),
        },
        pick!("min", |new, kept| new.compare(kept).is_lt()),
        pick!("max", |new, kept| new.compare(kept).is_gt()),
        AggDef {
            names: "any_value any",
            args: "a",
            sees_null: false,
            ret: |t| Ok(t.args[0].clone()),
            state: result_state,
            make: |_, _| Box::new(Pick { kept: Value::Null, replaces: |_, _| false }),
        },
        bits!("group_bit_and", |a, b| a & b),
        bits!("group_bit_or", |a, b| a | b),
        bits!("group_bit_xor", |a, b| a ^ b),
        sets!("bitmap_union", "m", bitmap_type, false, false),
        sets!("bitmap_union_count", "m", |t| bitmap_type(t).map(|_| DorisType::BigInt), false, true),
        sets!("bitmap_intersect", "m", bitmap_type, true, false),
        sets!("bitmap_union_int", "i", bigint_type, false, true),
        sets!("bitmap_agg", "i", |_| Ok(DorisType::Bitmap), false, false),
        sketches!("hll_union hll_raw_agg", "h", hll_type, false, false),
        sketches!("hll_union_agg", "h", |t| hll_type(t).map(|_| DorisType::BigInt), true, false),
        sketches!("approx_count_distinct ndv", "s", bigint_type, true, true),
        rows!("group_concat", "ssa+s+", true, text_type, group_concat),
        rows!("array_agg", "aa+s+", true, array_type, |rows, _| Ok(Value::List(collect(rows, true)))),
        rows!("collect_list group_array", "aa+s+", true, array_type, |rows, _| Ok(Value::List(collect(rows, false)))),
        rows!("collect_set group_uniq_array", "a", false, array_type, |rows, _| {
            let set: std::collections::BTreeSet<Value> = rows.iter().map(|row| row[0].clone()).collect();
            Ok(Value::List(set.into_iter().collect()))
        }),
        rows!("percentile percentile_cont percentile_approx", "ff", false, double_type, percentile),
        rows!("percentile_array", "fa", false, |_| Ok(DorisType::Array(Box::new(DorisType::Double))), percentile_array),
        rows!("median", "f", false, double_type, |rows, _| Ok(at_fraction(&numbers(rows), 0.5))),
        rows!("max_by", "aa", true, |t| Ok(t.args[0].clone()), |rows, _| extreme_by(rows, true)),
        rows!("min_by", "aa", true, |t| Ok(t.args[0].clone()), |rows, _| extreme_by(rows, false)),
        rows!("intersect_count", "maa+", false, bigint_type, intersect_count),
        rows!(
            "map_agg",
            "aa",
            true,
            |t| Ok(DorisType::Map(Box::new(t.args[0].clone()), Box::new(t.args[1].clone()))),
            |rows, _| {
                let mut entries: Vec<(Value, Value)> = Vec::new();
                for row in rows.iter().filter(|row| !row[0].is_null()) {
                    if !entries.iter().any(|(key, _)| *key == row[0]) {
                        entries.push((row[0].clone(), row[1].clone()));
                    }
                }
                Ok(Value::Map(entries))
            }
        ),
        AggDef {
            names: "count_if",
            args: "b",
            sees_null: true,
            ret: bigint_type,
            state: result_state,
            make: |_, _| Box::new(CountIf::default()),
        },
    ]
}

#[derive(Debug, Default)]
struct CountIf(i128);

impl Fold for CountIf {
    fn add(&mut self, row: &[Value]) {
        self.0 += i128::from(matches!(row[0], Value::Bool(true)));
    }

    fn save(&self) -> Vec<Value> {
        vec![Value::Int(self.0)]
    }

    fn load(&mut self, state: &[Value]) {
        if let Value::Int(count) = state[0] {
            self.0 += count;
        }
    }

    fn finish(&self) -> Outcome {
        Ok(Value::Int(self.0))
    }
}
