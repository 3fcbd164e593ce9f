-- The ways to read a changelog: the rows of now and what follows, every change since an instant, inserts alone.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -f examples/changelog_modes.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave --sandbox out.
-- Each read is bounded (`source.scan.bounded-mode`), so that it ends; without that option it goes on for ever. Ends with
-- an error if a read does not give what it should.

\doris CREATE DATABASE IF NOT EXISTS stock;
\doris DROP TABLE IF EXISTS stock.items;
\doris CREATE TABLE stock.items (
    id INT NOT NULL,
    name VARCHAR(20),
    pieces INT
) UNIQUE KEY(id)
DISTRIBUTED BY HASH(id) BUCKETS 2
PROPERTIES (
    "replication_num" = "1",
    "enable_unique_key_merge_on_write" = "true",
    "changelog.enable" = "true",
    "changelog.need_historical_value" = "true"
);
\doris INSERT INTO stock.items VALUES (1, 'pen', 10), (2, 'cup', 20), (3, 'hat', 30);
\doris UPDATE stock.items SET pieces = 19 WHERE id = 2;
\doris UPDATE stock.items SET pieces = 18 WHERE id = 2;
\doris INSERT INTO stock.items VALUES (4, 'mug', 40);
\doris DELETE FROM stock.items WHERE id = 4;
\doris DELETE FROM stock.items WHERE id = 3;

\echo == initial: the rows of now, then what changes
CREATE EXTERNAL TABLE items_initial STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'stock.items',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'source.scan.mode' 'initial',
    'source.scan.bounded-mode' 'latest'
);
-- EXPLAIN tells whether the snapshot is that of the instant at which the changes begin (snapshot=as-of).
EXPLAIN SELECT * FROM items_initial;
SELECT * FROM items_initial;
\assert SELECT count(*) >= 2 AS "the two rows that are left" FROM items_initial WHERE __change_kind = '+I';

\echo == from-timestamp: every change since an instant (in the time zone of the server)
CREATE EXTERNAL TABLE items_detail STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'stock.items',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'source.scan.mode' 'from-timestamp',
    'source.scan.timestamp' '2020-01-01 00:00:00',
    'source.scan.bounded-mode' 'latest',
    'source.changelog.max-window' '10000d',
    'source.changelog.on-expired' 'continue'
);
SELECT * FROM items_detail;
\assert SELECT count(*) = 10 AS "three and one inserts, two updates of two halves, two deletes" FROM items_detail;

\echo == append_only: what was inserted
CREATE EXTERNAL TABLE items_inserted STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'stock.items',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'source.scan.mode' 'from-timestamp',
    'source.scan.timestamp' '2020-01-01 00:00:00',
    'source.scan.bounded-mode' 'latest',
    'source.changelog.max-window' '10000d',
    'source.changelog.on-expired' 'continue',
    'source.changelog.increment-type' 'append_only',
    'source.changelog.metadata-columns' 'commit-time'
);
SELECT id, name, pieces, __change_kind FROM items_inserted;
\assert SELECT count(*) = 4 AS "four inserts", min(__commit_time) IS NOT NULL AS "with their time" FROM items_inserted;
