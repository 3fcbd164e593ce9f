//! Expressions of loads over batches.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::Schema;

use super::*;
use crate::engine::{Engine, EngineConfig};
use crate::types::{SessionZone, TextStyle, text_value};

fn context() -> ExprContext {
    let engine = Engine::new(EngineConfig::default());
    ExprContext::of_load(&engine, "d", "root", SessionZone::UTC)
}

fn batch() -> RecordBatch {
    let schema =
        Schema::new(vec![DorisType::Int.storage_field("Id", true), DorisType::Varchar(20).storage_field("name", true)]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])),
        Arc::new(StringArray::from(vec![Some("a"), Some("b"), None])),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).expect("batch")
}

#[test]
fn expressions_run_over_batches() {
    let batch = batch();
    for (text, ty, values) in [
        ("id", "int", ["1", "NULL", "3"]),
        ("ID + 1", "bigint", ["2", "NULL", "4"]),
        ("concat(`name`, '-', id)", "string", ["a-1", "NULL", "NULL"]),
        ("if(name = 'b', 1, 0)", "tinyint", ["0", "1", "0"]),
        ("upper(name)", "string", ["A", "B", "NULL"]),
        ("CAST(name AS INT)", "int", ["NULL", "NULL", "NULL"]),
    ] {
        let compiled = compile_expression(&context(), text, &batch.schema()).expect(text);
        let array = compiled.evaluate(&batch).expect(text);
        assert_eq!(compiled.doris_type().to_string(), ty, "{text}");
        let texts: Vec<String> = (0..array.len())
            .map(|row| text_value(&array, row, compiled.doris_type(), TextStyle::Mysql).unwrap_or("NULL".to_owned()))
            .collect();
        assert_eq!(texts, values, "{text}");
    }
    let filter = compile_expression(&context(), "id > 1 OR name = 'b'", &batch.schema()).expect("filter");
    assert_eq!(filter.evaluate_filter(&batch).expect("rows"), BooleanArray::from(vec![false, true, true]));
    let cast = compile_expression(&context(), "id", &batch.schema()).expect("cast");
    assert_eq!(cast.evaluate_as(&batch, &DorisType::String).expect("texts").null_count(), 1);
}

#[test]
fn what_is_no_expression_is_refused() {
    let schema = batch().schema();
    for (text, error) in [
        ("nope + 1", "Unknown column 'nope'"),
        ("nope(1)", "Can not found function 'nope'"),
        ("1 +", "Expected"),
        ("1 2", "mismatched input '2'"),
        ("1; 2", "expected one expression"),
    ] {
        let refused = compile_expression(&context(), text, &schema).expect_err(text);
        assert!(refused.message.contains(error), "{text}: {}", refused.message);
    }
}
