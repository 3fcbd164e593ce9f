//! Metadata commands, prepared statements and what is unimplemented (D.4, D.5).

use std::collections::HashMap;

use arrow::array::{Array, UnionArray};
use arrow::datatypes::{Field, Schema, TimeUnit};
use arrow_flight::sql::{
    ActionBeginTransactionRequest, ActionCreatePreparedSubstraitPlanRequest, CommandGetCrossReference,
    CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetXdbcTypeInfo,
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest, CommandStatementUpdate,
    DoPutUpdateResult,
};
use arrow_flight::{Criteria, FlightData};

use super::*;

fn tables(pattern: &str, include_schema: bool) -> CommandGetTables {
    CommandGetTables {
        catalog: None,
        db_schema_filter_pattern: Some("d".into()),
        table_name_filter_pattern: Some(pattern.into()),
        table_types: vec![],
        include_schema,
    }
}

async fn get_tables(fe: &mut Client, command: CommandGetTables) -> RecordBatch {
    let info = fe.get_tables(command).await.expect("info");
    let planned = info.clone().try_decode_schema().expect("schema");
    let batches = fetch(fe, ticket(&info, 0)).await.expect("rows");
    let batch = arrow::compute::concat_batches(&std::sync::Arc::new(planned), &batches).expect("one schema");
    assert!(batches.iter().all(|b| b.schema() == batch.schema()));
    batch
}

fn texts(batch: &RecordBatch, column: usize) -> Vec<String> {
    batch.column(column).as_string::<i32>().iter().map(|v| v.unwrap_or("NULL").to_owned()).collect()
}

fn table_schema(batch: &RecordBatch, row: usize) -> Schema {
    let bytes = bytes::Bytes::copy_from_slice(batch.column(4).as_binary::<i32>().value(row));
    Schema::try_from(arrow_flight::IpcMessage(bytes)).expect("schema")
}

#[tokio::test]
async fn catalogs_schemas_and_tables() {
    let s = sandbox().await;
    let mut fe = login(&s).await;
    let info = fe.get_catalogs().await.expect("info");
    assert_eq!(locations(&info), [format!("grpc+tcp://{}", s.addresses().fe_flight)]);
    assert_eq!(texts(&fetch(&mut fe, ticket(&info, 0)).await.expect("rows")[0], 0), ["internal"]);
    for (catalog, pattern, expected) in [
        (None, Some("d"), vec!["d"]),
        (Some("internal"), Some("informa%"), vec!["information_schema"]),
        (Some("x"), None, vec![]),
    ] {
        let command = CommandGetDbSchemas {
            catalog: catalog.map(str::to_owned),
            db_schema_filter_pattern: pattern.map(str::to_owned),
        };
        let info = fe.get_db_schemas(command).await.expect("info");
        let batches = fetch(&mut fe, ticket(&info, 0)).await.expect("rows");
        assert_eq!(batches.iter().flat_map(|b| texts(b, 1)).collect::<Vec<_>>(), expected, "{catalog:?} {pattern:?}");
    }
    let batch = get_tables(&mut fe, tables("%", false)).await;
    assert_eq!(batch.schema().fields().len(), 4);
    assert_eq!((texts(&batch, 2), texts(&batch, 3)), (vec!["dup".into(), "uniq".into()], vec!["BASE TABLE".into(); 2]));
    let batch = get_tables(&mut fe, tables("u_iq", true)).await;
    assert_eq!(texts(&batch, 2), ["uniq"]);
    // Only the first type counts.
    let mut typed = tables("%", false);
    typed.table_types = vec!["VIEW".into(), "BASE TABLE".into()];
    assert_eq!(get_tables(&mut fe, typed.clone()).await.num_rows(), 0);
    typed.table_types.reverse();
    assert_eq!(get_tables(&mut fe, typed).await.num_rows(), 2);
}

const TYPES: &str = "SET enable_decimal256 = true; CREATE TABLE d.types (k BIGINT NOT NULL, b BOOLEAN, f FLOAT, c DECIMAL(10, 2), big DECIMAL(60, 3), \
    d DATE, t DATETIME(3), v VARCHAR(9), j JSON, ip IPV4, l LARGEINT, a ARRAY<INT>, m MAP<STRING, INT>, s STRUCT<x: DATE>) \
    DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1";

#[tokio::test]
async fn schemas_of_tables_drift_in_older_builds() {
    for profile in [Profile::V2_1, Profile::V5_0Binlog, Profile::V5_0Changelog] {
        let newest = profile == Profile::V5_0Changelog;
        let s = builder().profile(profile).start().await.expect("sandbox");
        s.execute(TYPES).await.expect("table");
        let mut fe = login(&s).await;
        let schema = table_schema(&get_tables(&mut fe, tables("types", true)).await, 0);
        let data_type = |name: &str| schema.field_with_name(name).expect("field").data_type().clone();
        assert_eq!(
            (data_type("k"), data_type("ip"), data_type("l")),
            (DataType::Int64, DataType::Int32, DataType::Utf8)
        );
        assert_eq!((data_type("c"), data_type("big")), (DataType::Decimal128(10, 2), DataType::Decimal256(60, 3)));
        assert_eq!(data_type("d"), if newest { DataType::Date32 } else { DataType::Date64 }, "{profile}");
        let zone = (!newest).then(|| "UTC".into());
        assert_eq!(data_type("t"), DataType::Timestamp(TimeUnit::Millisecond, zone), "{profile}");
        let DataType::List(item) = data_type("a") else { panic!("list") };
        let item = (item.name().as_str(), item.data_type().clone(), item.is_nullable());
        assert_eq!(item, if newest { ("item", DataType::Int32, true) } else { ("$data$", DataType::Null, false) });
        let DataType::Struct(fields) = data_type("s") else { panic!("struct") };
        assert_eq!(fields.len(), usize::from(newest), "{profile}");
        if newest {
            let DataType::Map(entries, false) = data_type("m") else { panic!("map") };
            let DataType::Struct(entries) = entries.data_type() else { panic!("entries") };
            assert_eq!((entries[0].is_nullable(), entries[1].is_nullable()), (false, true));
            let sent = fe.execute("SELECT * FROM d.types".into(), None).await.expect("info").try_decode_schema();
            for (told, sent) in schema.fields().iter().zip(sent.expect("schema").fields()) {
                if !told.data_type().is_nested() {
                    assert_eq!((told.name(), told.data_type()), (sent.name(), sent.data_type()));
                }
            }
        }
        let is = |name: &str, pairs: &[(&str, &str)]| {
            let field: &Field = schema.field_with_name(name).expect("field");
            for (key, value) in pairs {
                let found = field.metadata().get(&format!("ARROW:FLIGHT:SQL:{key}")).map(String::as_str);
                assert_eq!(found.unwrap_or_default(), *value, "{name} {key}");
            }
        };
        is(
            "c",
            &[
                ("SCHEMA_NAME", "d"),
                ("TABLE_NAME", "types"),
                ("TYPE_NAME", "DECIMAL64"),
                ("PRECISION", "10"),
                ("SCALE", "2"),
                ("IS_AUTO_INCREMENT", "0"),
                ("IS_CASE_SENSITIVE", "0"),
                ("IS_READ_ONLY", "1"),
                ("IS_SEARCHABLE", "1"),
            ],
        );
        is("t", &[("TYPE_NAME", "DATETIMEV2"), ("SCALE", "3"), ("PRECISION", "")]);
        is("v", &[("TYPE_NAME", "VARCHAR"), ("SCALE", "")]);
        let tag = schema.field_with_name("ip").expect("ip").metadata().get("doris_type").map(String::as_str);
        assert_eq!(tag, (profile >= Profile::V5_0Binlog).then_some("IPV4"), "{profile}");
    }
}

#[tokio::test]
async fn the_server_tells_of_itself() {
    let s = sandbox().await;
    let mut fe = login(&s).await;
    let wanted = vec![
        SqlInfo::FlightSqlServerName,
        SqlInfo::FlightSqlServerVersion,
        SqlInfo::FlightSqlServerArrowVersion,
        SqlInfo::SqlIdentifierQuoteChar,
        SqlInfo::FlightSqlServerReadOnly,
        SqlInfo::SqlDdlCatalog,
        SqlInfo::SqlDdlTable,
    ];
    let info = fe.get_sql_info(wanted).await.expect("info");
    let batch = fetch(&mut fe, ticket(&info, 0)).await.expect("rows").remove(0);
    let values = batch.column(1).as_any().downcast_ref::<UnionArray>().expect("union");
    let mut told = HashMap::new();
    for row in 0..batch.num_rows() {
        let value = values.value(row);
        let text = match value.data_type() {
            DataType::Utf8 => value.as_string::<i32>().value(0).to_owned(),
            _ => value.as_boolean().value(0).to_string(),
        };
        told.insert(batch.column(0).as_primitive::<arrow::datatypes::UInt32Type>().value(row), text);
    }
    for (info, expected) in [
        (SqlInfo::FlightSqlServerName, "DorisFE"),
        (SqlInfo::FlightSqlServerVersion, "1.0"),
        (SqlInfo::FlightSqlServerArrowVersion, "18.2.0"),
        (SqlInfo::SqlIdentifierQuoteChar, "`"),
        (SqlInfo::FlightSqlServerReadOnly, "false"),
        (SqlInfo::SqlDdlCatalog, "true"),
        (SqlInfo::SqlDdlTable, "false"),
    ] {
        assert_eq!(told[&(info as u32)], expected, "{info:?}");
    }
}

/// A raw call with the token of a client.
fn authorized<T>(client: &Client, body: T) -> Request<T> {
    let mut request = Request::new(body);
    let value = format!("Bearer {}", client.token().expect("token"));
    request.metadata_mut().insert("authorization", value.parse().expect("value"));
    request
}

#[tokio::test]
async fn some_metadata_is_described_and_never_sent() {
    let s = sandbox().await;
    let fe = login(&s).await;
    let mut raw = raw_client(s.addresses().fe_flight).await;
    let table = || "dup".to_owned();
    for (command, columns, call) in [
        (arrow_flight::sql::CommandGetTableTypes {}.as_any(), 1, "getStreamTableTypes"),
        (CommandGetPrimaryKeys { catalog: None, db_schema: None, table: table() }.as_any(), 6, "getStreamPrimaryKeys"),
        (
            CommandGetExportedKeys { catalog: None, db_schema: None, table: table() }.as_any(),
            13,
            "getStreamExportedKeys",
        ),
        (
            CommandGetImportedKeys { catalog: None, db_schema: None, table: table() }.as_any(),
            13,
            "getStreamImportedKeys",
        ),
        (
            CommandGetCrossReference { pk_table: table(), fk_table: table(), ..Default::default() }.as_any(),
            13,
            "getStreamCrossReference",
        ),
        (CommandGetXdbcTypeInfo { data_type: None }.as_any(), 19, "getStreamTypeInfo"),
    ] {
        let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
        let info = raw.get_flight_info(authorized(&fe, descriptor)).await.expect("described").into_inner();
        assert_eq!(info.clone().try_decode_schema().expect("schema").fields().len(), columns, "{call}");
        let error = raw.do_get(authorized(&fe, ticket(&info, 0))).await.expect_err("not sent");
        assert_eq!((error.code(), error.message()), (Code::Unimplemented, format!("{call} unimplemented").as_str()));
    }
}

#[tokio::test]
async fn what_the_server_does_not_implement() {
    let s = sandbox().await;
    let fe = login(&s).await;
    let mut raw = raw_client(s.addresses().fe_flight).await;
    let error = raw.get_schema(authorized(&fe, FlightDescriptor::new_cmd(Vec::new()))).await.expect_err("refused");
    assert_eq!((error.code(), error.message()), (Code::Unimplemented, "getSchemaStatement unimplemented"));
    let error = raw.list_flights(authorized(&fe, Criteria::default())).await.expect_err("refused");
    assert_eq!((error.code(), error.message()), (Code::Unimplemented, "listFlights unimplemented"));
    let empty = futures::stream::iter(Vec::<FlightData>::new());
    let error = raw.do_exchange(authorized(&fe, empty)).await.expect_err("refused");
    assert_eq!((error.code(), error.message()), (Code::Unimplemented, "doExchange unimplemented"));
    for command in [
        CommandStatementUpdate { query: "DROP TABLE d.dup".into(), transaction_id: None }.as_any(),
        CommandStatementIngest { table: "dup".into(), ..Default::default() }.as_any(),
    ] {
        let data = put(&command, &Schema::empty(), None);
        let error = raw.do_put(authorized(&fe, futures::stream::iter(data))).await.expect_err("refused");
        assert_eq!(error.code(), Code::Unimplemented, "{}", command.type_url);
    }
    for (name, body) in [
        ("BeginTransaction", ActionBeginTransactionRequest {}.as_any().encode_to_vec()),
        ("CreatePreparedSubstraitPlan", ActionCreatePreparedSubstraitPlanRequest::default().as_any().encode_to_vec()),
        ("CancelFlightInfo", Vec::new()),
        ("RenewFlightEndpoint", Vec::new()),
    ] {
        let error = action(&s, &fe, name, body).await.expect_err("refused");
        assert_eq!(error.code(), Code::Unimplemented, "{name}");
    }
    s.execute("SELECT id FROM d.dup").await.expect("the table is still there");
}

/// Messages of a put: schema, and a batch if there is one.
fn put(command: &arrow_flight::sql::Any, schema: &Schema, batch: Option<&RecordBatch>) -> Vec<FlightData> {
    let batches: Vec<RecordBatch> = batch.cloned().into_iter().collect();
    let mut data = arrow_flight::utils::batches_to_flight_data(schema, batches).expect("data");
    data[0].flight_descriptor = Some(FlightDescriptor::new_cmd(command.encode_to_vec()));
    data
}

#[tokio::test]
async fn parameters_cannot_be_bound() {
    let s = sandbox().await;
    let mut fe = login(&s).await;
    let statement = fe.prepare("INSERT INTO d.dup VALUES (1, 'a', 1)".into(), None).await.expect("prepare");
    assert_eq!(statement.parameter_schema().expect("schema").fields().len(), 0);
    let handle = format!("{}:none", fe.token().expect("token"));
    let handle = || bytes::Bytes::from(handle.clone());
    let update = CommandPreparedStatementUpdate { prepared_statement_handle: handle() }.as_any();
    let query = CommandPreparedStatementQuery { prepared_statement_handle: handle() }.as_any();
    let rows = RecordBatch::try_from_iter([("a", std::sync::Arc::new(arrow::array::Int32Array::from(vec![1])) as _)])
        .expect("batch");
    let mut raw = raw_client(s.addresses().fe_flight).await;
    let none = put(&update, &rows.schema(), Some(&rows.slice(0, 0)));
    let answer = raw.do_put(authorized(&fe, futures::stream::iter(none))).await.expect("bound").into_inner();
    let answers: Vec<_> = answer.try_collect().await.expect("answers");
    let result = DoPutUpdateResult::decode(answers[0].app_metadata.clone()).expect("result");
    assert_eq!(result.record_count, -1);
    let one = put(&update, &rows.schema(), Some(&rows));
    let error = raw.do_put(authorized(&fe, futures::stream::iter(one))).await.expect_err("refused");
    assert_eq!(error.code(), Code::Internal);
    assert!(error.message().starts_with("acceptPutPreparedStatementUpdate failed, "), "{error}");
    let bound = put(&query, &rows.schema(), Some(&rows));
    let error = raw.do_put(authorized(&fe, futures::stream::iter(bound))).await.expect_err("refused");
    assert_eq!((error.code(), error.message()), (Code::Unimplemented, "acceptPutPreparedStatementQuery unimplemented"));
    assert_eq!(crate::testing::query(&s, "SELECT count(*) FROM d.dup").await, ["0"], "nothing ran");
}

#[tokio::test]
async fn a_handle_belongs_to_the_token_that_made_it() {
    let s = sandbox().await;
    fill(&s, 2).await;
    let mut first = login(&s).await;
    first.execute("USE d".into(), None).await.expect("use");
    let created = action(
        &s,
        &first,
        "CreatePreparedStatement",
        arrow_flight::sql::ActionCreatePreparedStatementRequest {
            query: "SELECT id FROM dup".into(),
            transaction_id: None,
        }
        .as_any()
        .encode_to_vec(),
    )
    .await
    .expect("created");
    let any = arrow_flight::sql::Any::decode(created).expect("any");
    let result: arrow_flight::sql::ActionCreatePreparedStatementResult = any.unpack().expect("kind").expect("result");
    let text = String::from_utf8(result.prepared_statement_handle.to_vec()).expect("text");
    let (token, id) = text.split_once(':').expect("two parts");
    assert_eq!((token, id.len()), (first.token().expect("token").as_str(), 36));
    // Whoever runs it, it runs on the connection of its own token.
    let second = login(&s).await;
    let mut raw = raw_client(s.addresses().fe_flight).await;
    let descriptor = |handle: &str| {
        let command = CommandPreparedStatementQuery { prepared_statement_handle: handle.to_owned().into() };
        FlightDescriptor::new_cmd(command.as_any().encode_to_vec())
    };
    let info = raw.get_flight_info(authorized(&second, descriptor(&text))).await.expect("info").into_inner();
    assert_eq!(ids(&rows(&s, &info).await), [0, 1]);
    let mixed = format!("{}:{id}", second.token().expect("token"));
    let error = raw.get_flight_info(authorized(&second, descriptor(&mixed))).await.expect_err("mixed");
    assert_eq!(error.code(), Code::Internal);
}
