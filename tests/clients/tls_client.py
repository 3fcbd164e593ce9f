"""PyMySQL and the ADBC driver over TLS."""

import os
import ssl

import adbc_driver_manager
import pymysql
from adbc_driver_flightsql import DatabaseOptions, dbapi

from report import PASSWORD, SERVER, USER, address, check, finish, refused

CA = os.environ["DORIS_CA"]
HOST, PORT = address("mysql")

connection = pymysql.connect(host=HOST, port=PORT, user=USER, password=PASSWORD, ssl=ssl.create_default_context(cafile=CA))
with connection, connection.cursor() as cursor:
    cursor.execute("SELECT 1")
    check("F.1", "PyMySQL with the test authority", cursor.fetchall(), ((1,),))
refused("F.1", "PyMySQL without it", "certificate", pymysql.Error, pymysql.connect, host=HOST, port=PORT, user=USER, password=PASSWORD, ssl=ssl.create_default_context())

URI = f"grpc+tls://{SERVER['fe_flight']}"
KEYS = {"username": USER, "password": PASSWORD}
with open(CA) as file:
    trusted = {**KEYS, DatabaseOptions.TLS_ROOT_CERTS.value: file.read()}
with dbapi.connect(URI, db_kwargs=trusted, autocommit=True) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT VARIABLE_NAME FROM information_schema.session_variables WHERE VARIABLE_NAME = 'query_timeout'")
    check("D.1", "Flight SQL over TLS, all endpoints", cursor.fetch_arrow_table().to_pylist(), [{"VARIABLE_NAME": "query_timeout"}])
refused("D.1", "Flight SQL without the authority", "certificate", adbc_driver_manager.Error, dbapi.connect, URI, db_kwargs=KEYS)
finish("TLS")
