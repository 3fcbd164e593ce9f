-- Updates some columns of a UNIQUE KEY table and keeps the others: the list of the INSERT says which.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -q -f examples/partial_columns.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave --sandbox out.

\doris CREATE DATABASE IF NOT EXISTS crm;
\doris DROP TABLE IF EXISTS crm.customers;
\doris CREATE TABLE crm.customers (
    id INT NOT NULL,
    name VARCHAR(20),
    city VARCHAR(20),
    points INT NOT NULL DEFAULT "100"
) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
PROPERTIES (
    "replication_num" = "1",
    "enable_unique_key_merge_on_write" = "true",
    "enable_unique_key_skip_bitmap_column" = "true"
);

CREATE EXTERNAL TABLE customers STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'crm.customers',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);
-- What the list of an INSERT leaves out keeps its value.
CREATE EXTERNAL TABLE customers_part STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'crm.customers',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.properties.partial_columns' 'true'
);
-- The same, with the columns declared: it loads only these.
CREATE EXTERNAL TABLE customers_points (id INT, points INT) STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'crm.customers',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.properties.partial_columns' 'true'
);
-- Each row brings columns of its own: NULL is left out.
CREATE EXTERNAL TABLE customers_flexible STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'crm.customers',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.properties.unique_key_update_mode' 'UPDATE_FLEXIBLE_COLUMNS'
);

\echo == New rows: a column that the list leaves out gets its default in Doris
INSERT INTO customers (id, name, city) VALUES (1, 'Ada', 'Bern'), (2, 'Bob', 'Rome'), (3, 'Cyd', 'Oslo');
SELECT * FROM customers ORDER BY id;

\echo == A partial update: new cities, and a new customer
INSERT INTO customers_part (id, city) VALUES (1, 'Kyiv'), (4, 'Lima');
INSERT INTO customers_points VALUES (2, 250);
SELECT * FROM customers ORDER BY id;
\assert_empty
    SELECT * FROM customers EXCEPT (VALUES
        (1, 'Ada', 'Kyiv', 100), (2, 'Bob', 'Rome', 250), (3, 'Cyd', 'Oslo', 100), (4, NULL, 'Lima', 100));

\echo == A flexible one: another column in each row
INSERT INTO customers_flexible VALUES (1, 'Eve', NULL, NULL), (3, NULL, NULL, 300), (4, 'Dan', NULL, 40);
SELECT * FROM customers ORDER BY id;
\assert_empty
    SELECT * FROM customers EXCEPT (VALUES
        (1, 'Eve', 'Kyiv', 100), (2, 'Bob', 'Rome', 250), (3, 'Cyd', 'Oslo', 300), (4, 'Dan', 'Lima', 40));
\assert SELECT count(*) = 4 AS "four customers" FROM customers;
