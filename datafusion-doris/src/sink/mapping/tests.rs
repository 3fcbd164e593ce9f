use std::collections::HashMap;

use super::*;
use crate::types::TableIdent;

fn table(model: KeyModel, properties: &[(&str, &str)]) -> TableSchema {
    let column = |name: &str, doris_type| ColumnSchema::new(name, doris_type);
    TableSchema {
        table: TableIdent::new("db", "t"),
        model: Some(model),
        columns: vec![
            column("id", DorisType::Int).with_key(true).with_nullable(false),
            column("Name", DorisType::Varchar(20)),
            column("score", DorisType::Int).with_nullable(false),
            ColumnSchema { default: Some("0".into()), ..column("visits", DorisType::Int).with_nullable(false) },
            column("users", DorisType::Opaque("BITMAP")).with_nullable(false),
        ],
        properties: properties.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
    }
}

fn options(properties: &[(&str, &str)]) -> SinkOptions {
    let properties = properties.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    SinkOptions::default().with_properties(properties.collect()).unwrap()
}

/// Columns of rows: `-name` is left out, `name:BOOLEAN` has that type, others are integers.
fn rows(names: &[&str]) -> Schema {
    let field = |name: &&str| {
        let (name, data_type) = match name.split_once(':') {
            Some((name, "BOOLEAN")) => (name, DataType::Boolean),
            Some((name, _)) => (name, DataType::Utf8),
            None => (*name, DataType::Int32),
        };
        match name.strip_prefix('-') {
            None => Field::new(name, data_type, true),
            Some(name) => {
                let mark = HashMap::from([(LEFT_OUT.to_string(), "true".to_string())]);
                Field::new(name, data_type, true).with_metadata(mark)
            }
        }
    };
    Schema::new(names.iter().map(field).collect::<Vec<_>>())
}

const SIGN: &str = "__doris_delete_sign__";

#[test]
fn the_header_follows_the_body() {
    // (columns of the rows, properties, change kind, header)
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], Option<&'a str>, &'a str);
    let cases: [Case<'_>; 9] = [
        (&["id", "name", "score"], &[], None, "`id`,`Name`,`score`"),
        (&["score", "-name", "id", "-visits"], &[], None, "`score`,`id`"),
        (&["id", "score", "kind:TEXT"], &[], Some("kind"), "`id`,`score`,__DORIS_DELETE_SIGN__"),
        (&["id", "score", SIGN], &[], None, "`id`,`score`,__DORIS_DELETE_SIGN__"),
        (&["id", "score", "kind:TEXT"], &[("columns", "score,id")], Some("kind"), "`score`,`id`,__DORIS_DELETE_SIGN__"),
        // Where the list has the sign does not matter: it is written last.
        (
            &["id", "score", SIGN],
            &[("columns", "__DORIS_DELETE_SIGN__,score,id")],
            None,
            "`score`,`id`,__DORIS_DELETE_SIGN__",
        ),
        (
            &["id", "score", "users"],
            &[("columns", "id,users,score,users=to_bitmap(users)")],
            None,
            "`id`,`users`,`score`,`users`=to_bitmap(users)",
        ),
        (&["id", "raw"], &[("columns", "id,raw,score=raw*2")], None, "`id`,`raw`,`score`=raw*2"),
        (&["id", "score"], &[("columns", "visits=score+1")], None, "`id`,`score`,`visits`=score+1"),
    ];
    for (columns, properties, kind, header) in cases {
        let options = options(properties).with_change_kind_column(kind.map(str::to_string));
        let mapping = Mapping::plan(&table(KeyModel::Unique, &[]), &rows(columns), &options).unwrap();
        assert_eq!(mapping.header.as_deref(), Some(header), "{columns:?}");
        assert_eq!(mapping.delete_sign, header.contains(DELETE_SIGN), "{columns:?}");
    }
}

#[test]
fn the_body_takes_columns_by_name_in_the_order_of_the_list() {
    let schema = rows(&["id", "-visits", "score", "raw"]);
    let options = options(&[("columns", "RAW,score,id,name=raw,id=raw")]);
    let mapping = Mapping::plan(&table(KeyModel::Unique, &[]), &schema, &options).unwrap();
    assert_eq!(mapping.body, [(3, "RAW".to_string()), (2, "score".to_string()), (0, "id".to_string())]);
    assert!(mapping.computes_key && mapping.partly);
    assert_eq!(mapping.written, ["score INT", "id INT", "name=raw", "id=raw"]);
}

#[test]
fn what_does_not_fit_is_refused_by_column() {
    const FIXED: (&str, &str) = ("partial_columns", "true");
    const FLEXIBLE: (&str, &str) = ("unique_key_update_mode", "UPDATE_FLEXIBLE_COLUMNS");
    const SEQUENCE: (&str, &str) = ("function_column.sequence_col", "visits");
    const TYPED: (&str, &str) = ("function_column.sequence_type", "int");
    const READ_MERGED: (&str, &str) = ("enable_unique_key_merge_on_write", "false");
    const UNIQUE: KeyModel = KeyModel::Unique;
    type Case<'a> = (KeyModel, &'a [(&'a str, &'a str)], &'a [&'a str], &'a [(&'a str, &'a str)], Option<&'a str>);
    let cases: [Case<'_>; 34] = [
        (UNIQUE, &[], &["id", "score"], &[], None),
        (UNIQUE, &[], &["id", "score", "age"], &[], Some("no column 'age'")),
        (UNIQUE, &[], &["id", "name"], &[], Some("column 'score' is NOT NULL")),
        (UNIQUE, &[], &["id", "-score"], &[], Some("column 'score' is NOT NULL")),
        (KeyModel::Duplicate, &[], &["score"], &[], Some("column 'id' is NOT NULL")),
        (UNIQUE, &[], &["id", "score", "users"], &[], Some("'id,score,users,users=to_bitmap(users)'")),
        // Partial updates.
        (UNIQUE, &[], &["id", "name"], &[FIXED], None),
        (UNIQUE, &[], &["name"], &[FIXED], Some("key column 'id'")),
        (UNIQUE, &[], &["-id", "name"], &[FIXED], Some("key column 'id'")),
        (UNIQUE, &[], &["raw", "name"], &[FIXED, ("columns", "raw,name,id=raw")], None),
        (UNIQUE, &[READ_MERGED], &["id", "name"], &[FIXED], Some("enable_unique_key_merge_on_write")),
        (KeyModel::Duplicate, &[], &["id", "name"], &[FIXED], Some("only UNIQUE KEY tables")),
        (KeyModel::Aggregate, &[], &["id", "name"], &[FLEXIBLE], Some("only UNIQUE KEY tables")),
        (UNIQUE, &[], &["id", "name", SIGN], &[FIXED], None),
        (UNIQUE, &[], &["id", "name", "score"], &[FLEXIBLE], None),
        (UNIQUE, &[], &["name"], &[FLEXIBLE], Some("key column 'id'")),
        // Expressions.
        (UNIQUE, &[], &["id", "score"], &[("columns", "id,score,raw")], Some("column 'raw' is not among")),
        (UNIQUE, &[], &["id", "score", "name"], &[("columns", "id,score")], Some("does not name column 'Name'")),
        (UNIQUE, &[], &["id", "score", "-name"], &[("columns", "id,score")], None),
        (
            UNIQUE,
            &[],
            &["id", "score", "-name"],
            &[("columns", "id,score,name")],
            Some("not in the list of the INSERT"),
        ),
        (UNIQUE, &[], &["id", "raw"], &[("columns", "id,raw,name=raw")], Some("column 'score' is NOT NULL")),
        // Deletes.
        (UNIQUE, &[], &["id", "score", "__DORIS_DELETE_SIGN__:BOOLEAN"], &[], None),
        (UNIQUE, &[], &["id", "score", "__doris_delete_sign__:TEXT"], &[], Some("it must be TINYINT")),
        (KeyModel::Duplicate, &[], &["id", "score", SIGN], &[], Some("no UNIQUE KEY table")),
        (KeyModel::Aggregate, &[], &["id", "score", SIGN], &[], Some("no UNIQUE KEY table")),
        (
            UNIQUE,
            &[],
            &["id", "score"],
            &[("columns", "id,score,__DORIS_DELETE_SIGN__")],
            Some("which the rows do not have"),
        ),
        (UNIQUE, &[], &["id", "score"], &[("columns", "__DORIS_DELETE_SIGN__=if(score<0,1,0)")], None),
        (KeyModel::Duplicate, &[], &["id", "score"], &[("merge_type", "DELETE")], Some("no UNIQUE KEY table")),
        (UNIQUE, &[], &["id", "score", SIGN], &[("merge_type", "DELETE")], Some("both say which rows delete")),
        // Sequences.
        (UNIQUE, &[SEQUENCE], &["id", "score", "visits"], &[], None),
        (UNIQUE, &[SEQUENCE], &["id", "score"], &[], Some("column 'visits' orders the writes")),
        (UNIQUE, &[TYPED], &["id", "score", "visits"], &[], Some("set 'sink.properties.function_column.sequence_col'")),
        (UNIQUE, &[TYPED], &["id", "score", "at"], &[("function_column.sequence_col", "at")], None),
        (
            UNIQUE,
            &[TYPED],
            &["id", "score"],
            &[("function_column.sequence_col", "at")],
            Some("column 'at' is not among"),
        ),
    ];
    for (model, properties, columns, given, refused) in cases {
        let planned = Mapping::plan(&table(model, properties), &rows(columns), &options(given));
        match (planned, refused) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) if error.to_string().contains(expected) => {}
            (result, _) => panic!("{properties:?} {columns:?} {given:?}, expected {refused:?}: {result:?}"),
        }
    }
    let both = options(&[]).with_change_kind_column(Some("kind".into()));
    let refused = |columns: &[&str], options: &SinkOptions| {
        Mapping::plan(&table(UNIQUE, &[]), &rows(columns), options).unwrap_err().to_string()
    };
    assert!(refused(&["id", "score", "kind:TEXT", SIGN], &both).contains("both tell deletes"));
    assert!(refused(&["id", "score"], &both).contains("no change-kind column 'kind'"));
    let before = options(&[FIXED]).with_change_kind_column(Some("kind".into())).with_ignore_update_before(false);
    assert!(refused(&["id", "name", "kind:TEXT"], &before).contains("update-before"));
    let none = options(&[("function_column.sequence_col", "score")]);
    let plain = Mapping::plan(&table(UNIQUE, &[("replication_num", "1")]), &rows(&["id", "score"]), &none);
    assert!(plain.unwrap_err().to_string().contains("no sequence column"));
}

#[test]
fn the_sequence_is_found_in_the_body() {
    let typed = [("function_column.sequence_type", "int")];
    for (properties, columns, given, expected) in [
        (&typed[..], &["at", "id", "score"][..], &[("function_column.sequence_col", "AT")][..], Some(0)),
        (&typed[..], &["id", "score", "__doris_sequence_col__"], &[], Some(2)),
        (&[("function_column.sequence_col", "visits")], &["id", "visits", "score"], &[], Some(1)),
        (&[], &["id", "score"], &[], None),
        // Computed by Doris: what a row has is not it.
        (&typed[..], &["id", "score"], &[("function_column.sequence_col", "n"), ("columns", "n=score+1")], None),
    ] {
        let mapping = Mapping::plan(&table(KeyModel::Unique, properties), &rows(columns), &options(given)).unwrap();
        assert_eq!(mapping.sequence, expected, "{columns:?} {given:?}");
    }
}

#[test]
fn a_flexible_update_sends_no_list_and_only_json() {
    let options = options(&[("unique_key_update_mode", "UPDATE_FLEXIBLE_COLUMNS")]);
    let target = table(KeyModel::Unique, &[]);
    let mapping = Mapping::plan(&target, &rows(&["id", "name"]), &options).unwrap();
    assert_eq!(mapping.header, None);
    // Without a list the names are those of the table.
    assert_eq!(mapping.body, [(0, "id".to_string()), (1, "Name".to_string())]);
    for (format, taken) in [(SinkFormat::Json, true), (SinkFormat::Csv, false), (SinkFormat::Arrow, false)] {
        assert_eq!(mapping.check_format(&target, &options, format).is_ok(), taken, "{format:?}");
    }
}

#[test]
fn arrow_carries_no_input_of_a_state() {
    let target = table(KeyModel::Unique, &[]);
    for (columns, list, taken) in [
        (&["id", "score", "users"], "id,score,users,users=to_bitmap(users)", false),
        (&["id", "score", "raw"], "id,score,raw,users=to_bitmap(raw)", true),
    ] {
        let options = options(&[("columns", list)]);
        let mapping = Mapping::plan(&target, &rows(columns), &options).unwrap();
        assert_eq!(mapping.check_format(&target, &options, SinkFormat::Arrow).is_ok(), taken, "{list}");
        assert!(mapping.check_format(&target, &options, SinkFormat::Csv).is_ok());
        assert_eq!(mapping.type_in_body(&target, "raw"), Some(&DorisType::String));
    }
}
