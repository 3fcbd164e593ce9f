//! Aggregates that need all rows at the end: lists, texts, percentiles.

use super::aggregate::Fold;
use super::bitmap::read as read_bitmap;
use super::row::Outcome;
use crate::types::bitmap::Bitmap;
use crate::types::{DorisType, Value};

/// All rows, for what needs them all.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) rows: Vec<Vec<Value>>,
    pub(super) types: Vec<DorisType>,
    pub(super) finish: fn(&[Vec<Value>], &[DorisType]) -> Outcome,
}

impl Fold for Rows {
    fn add(&mut self, row: &[Value]) {
        self.rows.push(row.to_vec());
    }

    fn save(&self) -> Vec<Value> {
        vec![Value::List(self.rows.iter().map(|row| Value::Struct(row.clone())).collect())]
    }

    fn load(&mut self, state: &[Value]) {
        let Value::List(rows) = &state[0] else { return };
        self.rows.extend(rows.iter().filter_map(|row| match row {
            Value::Struct(row) => Some(row.clone()),
            _ => None,
        }));
    }

    fn finish(&self) -> Outcome {
        (self.finish)(&self.rows, &self.types)
    }
}

pub(super) fn rows_state(args: &[DorisType], _: &DorisType) -> Vec<DorisType> {
    let fields = args.iter().enumerate().map(|(i, ty)| (format!("c{i}"), ty.clone())).collect();
    vec![DorisType::Array(Box::new(DorisType::Struct(fields)))]
}

/// Rows in the order of the sort keys that stand behind the arguments proper: key, then `asc` or `desc`.
pub(super) fn sorted(rows: &[Vec<Value>], arguments: usize) -> Vec<&Vec<Value>> {
    let mut out: Vec<&Vec<Value>> = rows.iter().collect();
    out.sort_by(|a, b| {
        let keys = (arguments..a.len()).step_by(2).map(|i| {
            let order = a[i].compare(&b[i]);
            if matches!(&a[i + 1], Value::Text(way) if way == "desc") { order.reverse() } else { order }
        });
        keys.into_iter().find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
    });
    out
}

pub(super) fn group_concat(rows: &[Vec<Value>], _: &[DorisType]) -> Outcome {
    let mut out: Option<String> = None;
    for row in sorted(rows, 2) {
        let (Value::Text(own), Value::Text(separator)) = (&row[0], &row[1]) else { continue };
        out = Some(match out {
            None => own.clone(),
            Some(all) => all + separator + own,
        });
    }
    Ok(out.map_or(Value::Null, Value::Text))
}

pub(super) fn collect(rows: &[Vec<Value>], keeps_null: bool) -> Vec<Value> {
    let items = sorted(rows, 1).into_iter().map(|row| row[0].clone());
    items.filter(|item| keeps_null || !item.is_null()).collect()
}

/// The value at a fraction of the sorted numbers, between two of them in proportion.
pub(super) fn at_fraction(numbers: &[f64], fraction: f64) -> Value {
    if numbers.is_empty() || !(0.0..=1.0).contains(&fraction) {
        return Value::Null;
    }
    let at = fraction * (numbers.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    Value::Float(numbers[low] + (numbers[high] - numbers[low]) * (at - at.floor()))
}

pub(super) fn numbers(rows: &[Vec<Value>]) -> Vec<f64> {
    let mut out: Vec<f64> = rows.iter().filter_map(|row| row[0].as_f64()).collect();
    out.sort_by(f64::total_cmp);
    out
}

pub(super) fn percentile(rows: &[Vec<Value>], _: &[DorisType]) -> Outcome {
    let fraction = rows.first().and_then(|row| row[1].as_f64()).unwrap_or(0.5);
    if !(0.0..=1.0).contains(&fraction) {
        return Err(format!("percentile must be in the range [0, 1], but got {fraction}"));
    }
    Ok(at_fraction(&numbers(rows), fraction))
}

pub(super) fn percentile_array(rows: &[Vec<Value>], _: &[DorisType]) -> Outcome {
    let numbers = numbers(rows);
    Ok(match rows.first().map(|row| &row[1]) {
        Some(Value::List(fractions)) => {
            Value::List(fractions.iter().map(|f| at_fraction(&numbers, f.as_f64().unwrap_or(-1.0))).collect())
        }
        _ => Value::List(Vec::new()),
    })
}

pub(super) fn extreme_by(rows: &[Vec<Value>], largest: bool) -> Outcome {
    let with_key = rows.iter().filter(|row| !row[1].is_null());
    let row =
        if largest { with_key.max_by(|a, b| a[1].compare(&b[1])) } else { with_key.min_by(|a, b| a[1].compare(&b[1])) };
    Ok(row.map_or(Value::Null, |row| row[0].clone()))
}

pub(super) fn intersect_count(rows: &[Vec<Value>], _: &[DorisType]) -> Outcome {
    let Some(first) = rows.first() else { return Ok(Value::Int(0)) };
    let mut all: Option<Bitmap> = None;
    for wanted in &first[2..] {
        let mut union = Bitmap::new();
        for row in rows.iter().filter(|row| row[1] == *wanted) {
            if let Value::Bytes(bytes) = &row[0] {
                union.union_with(&read_bitmap(bytes));
            }
        }
        match &mut all {
            None => all = Some(union),
            Some(all) => all.intersect_with(&union),
        }
    }
    Ok(Value::Int(i128::from(all.unwrap_or_default().cardinality())))
}
