"""The SQLAlchemy dialect `doris-alchemy`, and the Stream Load client `DorisClient`."""

import logging

import sqlalchemy as sa
from doris_alchemy import HASH
from DorisClient import DorisSession

from report import PASSWORD, SERVER, USER, address, check, contains, finish, refused

HOST, PORT = address("mysql")


def engine(database):
    return sa.create_engine(sa.URL.create("doris+pymysql", USER, PASSWORD, HOST, PORT, database))


with engine(None).connect() as connection:
    connection.exec_driver_sql("CREATE DATABASE alchemy")
main = engine("alchemy")
metadata = sa.MetaData()
people = sa.Table(
    "people", metadata,
    sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(20)), sa.Column("born", sa.Date),
    doris_unique_key=("id",), doris_distributed_by=HASH("id", buckets=2), doris_properties={"replication_num": "1"})
people.create(main)
inspector = sa.inspect(main)
check("F.5", "tables by SHOW FULL TABLES", inspector.get_table_names(), ["people"])
check("F.4", "columns by SHOW COLUMNS", [column["name"] for column in inspector.get_columns("people")], ["id", "name", "born"])
check("F.5", "databases by SHOW SCHEMAS", {"alchemy", "information_schema"} <= set(inspector.get_schema_names()), True)
with main.begin() as connection:
    connection.execute(sa.insert(people), [{"id": 1, "name": "Ann"}, {"id": 2, "name": "B'o\\b"}, {"id": 1, "name": "Eve"}])
with main.connect() as connection:
    found = connection.execute(sa.select(people.c.id, people.c.name).where(people.c.id < 3).order_by(people.c.id)).all()
    check("I", "rows written and read, the last of a key wins", found, [(1, "Eve"), (2, "B'o\\b")])
    grouped = connection.execute(sa.select(sa.func.count(), sa.func.max(people.c.name))).one()
    check("J.7", "aggregates", grouped, (2, "Eve"))
    refused("F.3", "an error of the server", "Table [nope] does not exist in database [alchemy].", sa.exc.DatabaseError, connection.exec_driver_sql, "SELECT * FROM nope")
with main.begin() as connection:
    connection.execute(sa.update(people).where(people.c.id == 2).values(name="Bob"))
    connection.execute(sa.delete(people).where(people.c.id == 1))
with main.connect() as connection:
    check("I", "UPDATE and DELETE", connection.execute(sa.select(people.c.name)).all(), [("Bob",)])

logging.disable(logging.ERROR)
loader = DorisSession([SERVER["fe_http"]], "alchemy", USER, PASSWORD, PORT)
# The public method sleeps before its first try.
load = loader._streamload
check("A.8", "a load through the 307 of the FE", load("people", [{"id": 5, "name": "Cid"}, {"id": 6, "name": "Dan"}]), True)
check("B.2", "columns name the keys of the objects", loader.read("SELECT id, name FROM people WHERE id > 4 ORDER BY id"), [{"id": 5, "name": "Cid"}, {"id": 6, "name": "Dan"}])
check("B.2", "merge_type DELETE", load("people", [{"id": 5}], merge_type="DELETE"), True)
check("B.2", "the key is gone", loader.read("SELECT count(*) AS n FROM people WHERE id = 5"), [{"n": 0}])
check("B.2", "merge_type MERGE", load("people", [{"id": 6, "name": "x"}, {"id": 7, "name": "Fay"}], merge_type="MERGE", delete="name = 'x'"), True)
check("B.2", "rows of the condition are deletes", loader.read("SELECT id FROM people WHERE id > 5"), [{"id": 7}])
check("B.3", "a refused load", load("people", [{"id": "not a number"}]), False)
finish("doris-alchemy and DorisClient")
