"""The ADBC driver for Flight SQL and pyarrow."""

import datetime
import decimal

import adbc_driver_manager
import pyarrow
from adbc_driver_flightsql import DatabaseOptions, dbapi

from report import PASSWORD, SERVER, USER, check, contains, finish, refused

URI = f"grpc://{SERVER['fe_flight']}"
Error = adbc_driver_manager.Error


def connect(password=PASSWORD, **options):
    return dbapi.connect(URI, db_kwargs={"username": USER, "password": password, **options}, autocommit=True)


def run(connection, sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetch_arrow_table()


with connect() as connection:
    check("D.3", "a statement without a result answers one StatusResult", run(connection, "CREATE DATABASE adbc").to_pylist(), [{"StatusResult": "0"}])
    run(connection, "USE adbc")
    check("D.2", "USE lasts for the token", run(connection, "SELECT DATABASE() AS db").to_pylist(), [{"db": "adbc"}])
    run(connection, """
        CREATE TABLE types (k INT NOT NULL, b BOOLEAN, ti TINYINT, si SMALLINT, bi BIGINT, li LARGEINT, f FLOAT, d DOUBLE,
        dc DECIMAL(20,4), c CHAR(4), v VARCHAR(10), s STRING, dt DATE, t0 DATETIME, t3 DATETIME(3), t6 DATETIME(6),
        j JSON, a ARRAY<INT>, m MAP<STRING,INT>, st STRUCT<x:INT,y:STRING>, ip4 IPV4, ip6 IPV6)
        DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2 PROPERTIES ("replication_num" = "1")""")
    run(connection, """
        INSERT INTO types VALUES (1, true, -128, 32767, 9223372036854775807, 170141183460469231731687303715884105727, 1.5,
        -2.25, 1234567890123456.7891, 'ab', 'é', '', '2024-02-29', '2024-02-29 01:02:03', '2024-02-29 01:02:03.456',
        '2024-02-29 01:02:03.456789', '{"a":1}', [1, NULL], {'k': 2}, named_struct('x', 3, 'y', 'z'), '10.0.0.1', '::1')""")
    run(connection, "INSERT INTO types (k) VALUES (2)")
    table = run(connection, "SELECT * FROM types ORDER BY k")
    row, empty = table.to_pylist()
    types = {field.name: field.type for field in table.schema}
    for name, expected in {
        "b": pyarrow.bool_(), "ti": pyarrow.int8(), "si": pyarrow.int16(), "k": pyarrow.int32(), "bi": pyarrow.int64(),
        "li": pyarrow.string(), "f": pyarrow.float32(), "d": pyarrow.float64(), "dc": pyarrow.decimal128(20, 4),
        "c": pyarrow.string(), "v": pyarrow.string(), "s": pyarrow.string(), "dt": pyarrow.date32(),
        "t0": pyarrow.timestamp("s"), "t3": pyarrow.timestamp("ms"), "t6": pyarrow.timestamp("us"),
        "j": pyarrow.string(), "ip4": pyarrow.int32(), "ip6": pyarrow.string(),
    }.items():
        check("E", f"Arrow type of {name}", types[name], expected)
    check("E", "an ARRAY is a list of item", types["a"].value_field.name, "item")
    check("E", "LARGEINT carries its name", table.schema.field("li").metadata, {b"doris_type": b"LARGEINT"})
    check("E", "a NOT NULL column is a field without nulls", table.schema.field("k").nullable, False)
    for name, expected in {
        "b": True, "ti": -128, "si": 32767, "bi": 2**63 - 1, "li": str(2**127 - 1), "f": 1.5, "d": -2.25,
        "dc": decimal.Decimal("1234567890123456.7891"), "c": "ab", "v": "é", "s": "", "dt": datetime.date(2024, 2, 29),
        "t0": datetime.datetime(2024, 2, 29, 1, 2, 3), "t3": datetime.datetime(2024, 2, 29, 1, 2, 3, 456000),
        "t6": datetime.datetime(2024, 2, 29, 1, 2, 3, 456789), "j": '{"a":1}', "a": [1, None], "m": [("k", 2)],
        "st": {"x": 3, "y": "z"}, "ip4": 167772161, "ip6": "::1",
    }.items():
        check("E", f"value of {name}", row[name], expected)
    check("E", "nulls of every type", [name for name, value in empty.items() if value is not None], ["k"])
    check("D.3", "no rows keep the schema", run(connection, "SELECT k, v FROM types LIMIT 0").schema.names, ["k", "v"])
    check("D.3", "results of the FE are text", {f.type for f in run(connection, "SHOW TABLES").schema}, {pyarrow.string()})
    run(connection, "SET enable_parallel_result_sink = true")
    check("D.3", "all endpoints of a parallel result are read", run(connection, "SELECT k FROM types").num_rows, 2)
    run(connection, "SET enable_parallel_result_sink = false")

    text = refused("D.3", "a planner error is INTERNAL with the MySQL text", "errCode = 2, detailMessage = Unknown column 'nope' in 'table list'", Error, run, connection, "SELECT nope FROM types")
    contains("D.3", "behind the name of the call", text, "get flight info statement failed")
    check("D.3", "as status", text.status_code, adbc_driver_manager.AdbcStatusCode.INTERNAL)
    refused("D.3", "only one statement of a list may have rows", "There can only be one stmt that returns the result and it is at the end.", Error, run, connection, "SELECT 1 AS a; SELECT 2 AS b")
    with connection.cursor() as cursor:
        refused("D.4", "parameters are not served", "", Error, cursor.execute, "SELECT k FROM types WHERE k = ?", (1,))
        refused("D.4", "bulk ingest is not served", "", Error, cursor.adbc_ingest, "types", pyarrow.table({"k": pyarrow.array([9], pyarrow.int32())}), mode="append")
    check("D.4", "the connection lives on", run(connection, "SELECT count(*) AS n FROM types").to_pylist(), [{"n": 2}])

    # One level at a time: the driver asks for everything in one answer.
    objects = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
    check("D.5", "one catalog", [entry["catalog_name"] for entry in objects], ["internal"])
    schemas = {s["db_schema_name"]: s["db_schema_tables"] for s in objects[0]["catalog_db_schemas"]}
    check("D.5", "databases are schemas", {"adbc", "information_schema"} <= set(schemas), True)
    check("D.5", "tables of a schema", [t["table_name"] for t in schemas["adbc"]], ["types"])
    found = connection.adbc_get_objects(depth="columns", db_schema_filter="adbc", table_name_filter="types").read_all().to_pylist()
    columns = found[0]["catalog_db_schemas"][0]["db_schema_tables"][0]["table_columns"]
    check("D.5", "columns of a table", [c["column_name"] for c in columns], list(types))
    check("D.5", "GetTables with schema", connection.adbc_get_table_schema("types", db_schema_filter="adbc").names, list(types))
    check("D.5", "GetSqlInfo names the server", bool(connection.adbc_get_info().get("vendor_name")), True)
    refused("D.5", "GetTableTypes is not served", "unimplemented", (Error, OSError), connection.adbc_get_table_types)

refused("D.1", "a wrong password is UNAUTHENTICATED", "", Error, connect, password="wrong")
with connect() as first, connect() as second:
    run(first, "SET query_timeout = 77")
    value = run(second, "SELECT @@query_timeout AS t").to_pylist()
    check("D.2", "a token is one session", value, [{"t": "900"}])
with connect(**{DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true"}) as connection:
    check("D.1", "with cookies", run(connection, "SELECT 1 AS a").num_rows, 1)
finish("adbc_driver_flightsql")
