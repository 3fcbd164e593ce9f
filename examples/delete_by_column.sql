-- Deletes rows of a UNIQUE KEY table by a column of the rows that are written: 1 deletes the key, 0 writes the row.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -q -f examples/delete_by_column.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave --sandbox out.

\doris CREATE DATABASE IF NOT EXISTS crm;
\doris DROP TABLE IF EXISTS crm.accounts;
\doris CREATE TABLE crm.accounts (id INT NOT NULL, name VARCHAR(20) NOT NULL, balance DECIMAL(10, 2))
UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
PROPERTIES ("replication_num" = "1", "enable_unique_key_merge_on_write" = "true");

-- The sign may be declared as the last column.
CREATE EXTERNAL TABLE accounts (id INT, name VARCHAR, balance DECIMAL(10, 2), __DORIS_DELETE_SIGN__ TINYINT)
STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'crm.accounts',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);

-- Rows that do not name it are written.
INSERT INTO accounts (id, name, balance) VALUES (1, 'Ada', 10.00), (2, 'Bob', 20.00), (3, 'Cyd', 0.00);
SELECT id, name, balance FROM accounts ORDER BY id;

\echo == Writes and deletes in one statement: all of them become visible together
INSERT INTO accounts VALUES (1, 'Ada', 15.00, 0), (2, '', NULL, 1), (4, 'Dan', 40.00, 0);
SELECT id, name, balance FROM accounts ORDER BY id;

\echo == A condition decides: accounts without a balance go
INSERT INTO accounts (id, __DORIS_DELETE_SIGN__, name)
    SELECT id, CASE WHEN balance = 0 THEN 1 ELSE 0 END, name FROM accounts WHERE balance = 0;
SELECT id, name, balance FROM accounts ORDER BY id;

\echo == A table without it: the list of the INSERT names the sign
CREATE EXTERNAL TABLE plain STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'crm.accounts',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);
INSERT INTO plain (id, name, balance, __DORIS_DELETE_SIGN__) VALUES (4, '', NULL, 1), (5, 'Eve', 50.00, 0);
SELECT * FROM plain ORDER BY id;

\assert_empty SELECT id, name, balance FROM accounts EXCEPT (VALUES (1, 'Ada', 15.00), (5, 'Eve', 50.00));
\assert SELECT count(*) = 2 AS "two accounts" FROM accounts;
