-- Changes rows in place, deletes some, and replaces all of them at once; each step is checked.
--
--   cargo run --locked --bin datafusion-doris-cli -- --sandbox -q -f examples/change_rows.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave --sandbox out.

\doris CREATE DATABASE IF NOT EXISTS shop;
\doris DROP TABLE IF EXISTS shop.stock;
\doris CREATE TABLE shop.stock (id INT NOT NULL, name VARCHAR(20), pieces INT, checked DATE)
UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
PROPERTIES ("replication_num" = "1", "enable_unique_key_merge_on_write" = "true");

CREATE EXTERNAL TABLE stock STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'jdbc-url' '${jdbc_url}',
    'table.identifier' 'shop.stock',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);

INSERT INTO stock VALUES
    (1, 'pen', 10, DATE '2026-01-01'), (2, 'cup', 20, DATE '2026-01-01'), (3, 'hat', 30, NULL), (4, 'mug', 40, NULL);

-- One statement of Doris each.
UPDATE stock SET pieces = pieces + 5, checked = DATE '2026-02-01' WHERE id IN (1, 2);
DELETE FROM stock WHERE checked IS NULL AND pieces > 35;
SELECT * FROM stock ORDER BY id;
\assert SELECT count(*) = 3 AND sum(pieces) = 70 FROM stock;

-- All rows at once: readers see the old ones or the new ones. Here from the table itself.
INSERT OVERWRITE stock SELECT id, upper(name), pieces * 2, checked FROM stock WHERE id < 3;
SELECT * FROM stock ORDER BY id;
\assert SELECT count(*) = 2 AND sum(pieces) = 80 AND min(name) = 'CUP' FROM stock;

TRUNCATE TABLE stock;
\assert_empty SELECT * FROM stock;
