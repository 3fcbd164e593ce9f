"""PyMySQL, and MySQL Connector/Python where it differs."""

import datetime
import decimal

import mysql.connector
import pymysql
from pymysql.constants import CLIENT

from report import PASSWORD, USER, address, check, contains, finish, refused

HOST, PORT = address("mysql")


def connect(**options):
    return pymysql.connect(host=HOST, port=PORT, user=USER, **{"password": PASSWORD, **options})


def code(section, what, number, part, connection, sql):
    """The error has this number and text."""
    with connection.cursor() as cursor:
        error = refused(section, what, part, pymysql.Error, cursor.execute, sql)
    check(section, f"{what}: code", error.args[0], number)


connection = connect(autocommit=True)
cursor = connection.cursor()


def rows(sql, arguments=None):
    cursor.execute(sql, arguments)
    return list(cursor.fetchall())


check("F.1", "server version", connection.get_server_info(), "5.7.99")
check("F.1", "protocol version", connection.get_proto_info(), 10)
error = refused("F.1", "a wrong password", "Access denied for user", pymysql.Error, connect, password="wrong")
check("F.1", "a wrong password: code", error.args[0], 1045)
error = refused("F.1", "an unknown database at login", "Unknown database 'nowhere'", pymysql.Error, connect, database="nowhere")
check("F.1", "an unknown database at login: code", error.args[0], 1049)
connection.ping()
check("F.1", "COM_PING", connection.open, True)

check("F.1", "rows of DDL", cursor.execute("CREATE DATABASE py"), 0)
connection.select_db("py")
check("F.1", "COM_INIT_DB", rows("SELECT DATABASE()"), [("py",)])
cursor.execute("""
    CREATE TABLE types (k INT NOT NULL, b BOOLEAN, bi BIGINT, li LARGEINT, f FLOAT, d DOUBLE, dc DECIMAL(20,4), v VARCHAR(40),
    dt DATE, t0 DATETIME, t6 DATETIME(6), j JSON, a ARRAY<INT>) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2
    PROPERTIES ("replication_num" = "1", "enable_unique_key_merge_on_write" = "true")""")
affected = cursor.execute(
    "INSERT INTO types VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
    (1, True, -(2**63), 2**127 - 1, 1.5, -2.25, decimal.Decimal("1234.5000"), "it's \"q\" \\ \n é",
     datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3),
     datetime.datetime(2024, 2, 29, 1, 2, 3, 456789), '{"a":1}', "[1, null]"))
check("H.5", "affected rows of INSERT", affected, 1)
check("E", "every type comes back as it went", rows("SELECT * FROM types"), [(
    1, 1, -(2**63), str(2**127 - 1), 1.5, -2.25, decimal.Decimal("1234.5000"), "it's \"q\" \\ \n é",
    datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 456789), '{"a":1}', "[1, null]")])
check("H.5", "executemany is one INSERT", cursor.executemany("INSERT INTO types (k, v) VALUES (%s, %s)", [(2, "b"), (3, None)]), 2)
check("I", "the last row of a key wins", cursor.execute("INSERT INTO types (k, v) VALUES (2, 'c')") and rows("SELECT v FROM types WHERE k = 2"), [("c",)])
check("I", "UPDATE on a unique table", cursor.execute("UPDATE types SET v = 'u' WHERE k = 3") >= 0 and rows("SELECT v FROM types WHERE k = 3"), [("u",)])
cursor.execute("DELETE FROM types WHERE k = 3")
check("I", "DELETE hides the row", rows("SELECT k FROM types ORDER BY k"), [(1,), (2,)])
check("J.3", "nulls", rows("SELECT NULL, v IS NULL FROM types WHERE k = 1"), [(None, 0)])
check("J.4", "integers divide as DOUBLE, by zero is NULL", rows("SELECT 7 / 2, 7 DIV 2, 1 / 0"), [(3.5, 3, None)])

code("F.3", "an unknown column", 1105, "errCode = 2, detailMessage = Unknown column 'nope' in 'table list'", connection, "SELECT nope FROM types")
code("F.3", "an unknown table", 1105, "errCode = 2, detailMessage = Table [nope] does not exist in database [py].", connection, "SELECT * FROM nope")
code("F.3", "a database that is there", 1007, "Can't create database 'py'; database exists", connection, "CREATE DATABASE py")
code("F.3", "a table that is there", 1050, "Table 'types' already exists", connection, "CREATE TABLE types (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1")
code("F.1", "an unknown variable", 1193, "Unknown system variable 'nope'", connection, "SET nope = 1")
code("H.5", "strict INSERT", 1105, "Insert has filtered data in strict mode", connection, f"INSERT INTO types (k, v) VALUES (9, '{'x' * 41}')")

check("F.4", "information_schema.columns", rows(
    "SELECT COLUMN_NAME, COLUMN_TYPE, COLUMN_KEY FROM information_schema.columns WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION LIMIT 4",
    ("py", "types")), [("k", "int(11)", "UNI"), ("b", "tinyint(1)", ""), ("bi", "bigint(20)", ""), ("li", "largeint", "")])
check("F.5", "SHOW TABLES", rows("SHOW TABLES"), [("types",)])
cursor.execute("SHOW FRONTENDS")
check("F.5", "SHOW FRONTENDS has the Flight port", "ArrowFlightSqlPort" in [column[0] for column in cursor.description], True)
check("F.4", "SHOW columns are strings", {column[1] for column in cursor.description} <= {253, 254}, True)

with connect(database="py", client_flag=CLIENT.MULTI_STATEMENTS) as several, several.cursor() as many:
    many.execute("SELECT 1; SELECT 2")
    sets = [many.fetchall()]
    while many.nextset():
        sets.append(many.fetchall())
    check("F.1", "several statements, several results", sets, [((1,),), ((2,),)])
with connect(database="py", cursorclass=pymysql.cursors.SSCursor) as unbuffered, unbuffered.cursor() as stream:
    stream.execute("SELECT k FROM types ORDER BY k")
    check("F.1", "an unbuffered result", [row for row in stream], [(1,), (2,)])
with connect(database="py", cursorclass=pymysql.cursors.DictCursor, init_command="SET time_zone = '+00:00'") as named, named.cursor() as zone:
    zone.execute("SELECT @@time_zone AS z")
    check("F.2", "variables are the connection's", zone.fetchall(), [{"z": "+00:00"}])

with mysql.connector.connect(host=HOST, port=PORT, user=USER, password=PASSWORD, database="py", autocommit=True) as other:
    with other.cursor() as plain:
        plain.execute("SELECT k, dc, t6 FROM types WHERE k = %s", (1,))
        check("F.1", "Connector/Python reads it as well", plain.fetchall(), [(1, decimal.Decimal("1234.5000"), datetime.datetime(2024, 2, 29, 1, 2, 3, 456789))])
        check("F.1", "and its column names", plain.column_names, ("k", "dc", "t6"))
    error = refused("F.3", "and gets the code and state", "Table [nope] does not exist in database [py].", mysql.connector.Error, other.cmd_query, "SELECT * FROM nope")
    check("F.3", "code and state", (error.errno, error.sqlstate), (1105, "HY000"))
    other.cmd_reset_connection()
    check("F.1", "COM_RESET_CONNECTION", other.is_connected(), True)
connection.close()
finish("pymysql and mysql.connector")
