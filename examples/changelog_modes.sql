-- The ways to read a table and its changelog, each with the rows that it gives.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -q -f examples/changelog_modes.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave --sandbox out.
-- The output stands in the README, and a test compares the two.

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

-- Where the two endless reads below put what they see: a history, with the change kind as a column of its own.
\doris DROP TABLE IF EXISTS stock.seen_initial;
\doris CREATE TABLE stock.seen_initial (id INT, name VARCHAR(20), pieces INT, tso BIGINT, kind VARCHAR(2))
DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ("replication_num" = "1");
\doris DROP TABLE IF EXISTS stock.seen_latest;
\doris CREATE TABLE stock.seen_latest (id INT, name VARCHAR(20), pieces INT, tso BIGINT, kind VARCHAR(2))
DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ("replication_num" = "1");
CREATE EXTERNAL TABLE items STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'stock.items',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);
CREATE EXTERNAL TABLE seen_initial STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'stock.seen_initial',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);
CREATE EXTERNAL TABLE seen_latest STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'stock.seen_latest',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);
CREATE EXTERNAL TABLE items_initial STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'stock.items',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'source.scan.mode' 'initial',
    'source.changelog.poll-interval' '1s',
    'source.changelog.metadata-columns' 'tso'
);
CREATE EXTERNAL TABLE items_latest STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'stock.items',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'source.scan.mode' 'latest',
    'source.changelog.poll-interval' '1s',
    'source.changelog.metadata-columns' 'tso'
);
-- Every change since an instant, in the time zone of the server; bounded, so that the read ends.
CREATE EXTERNAL TABLE items_detail STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'stock.items',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'source.scan.mode' 'from-timestamp',
    'source.scan.timestamp' '2020-01-01 00:00:00',
    'source.scan.bounded-mode' 'latest',
    'source.changelog.max-window' '10000d'
);
CREATE EXTERNAL TABLE items_net STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'stock.items',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'source.scan.mode' 'from-timestamp',
    'source.scan.timestamp' '2020-01-01 00:00:00',
    'source.scan.bounded-mode' 'latest',
    'source.changelog.max-window' '10000d',
    'source.changelog.increment-type' 'min_delta'
);
CREATE EXTERNAL TABLE items_inserted STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'stock.items',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'source.scan.mode' 'from-timestamp',
    'source.scan.timestamp' '2020-01-01 00:00:00',
    'source.scan.bounded-mode' 'latest',
    'source.changelog.max-window' '10000d',
    'source.changelog.increment-type' 'append_only'
);

-- A bounded read ends when the second is over in which it was started: what follows starts in a later one.
\assert SELECT count(*) = 3 AS "three rows so far" FROM items_detail;

\job initial INSERT INTO seen_initial SELECT id, name, pieces, __commit_tso, __change_kind FROM items_initial;
\job latest INSERT INTO seen_latest SELECT id, name, pieces, __commit_tso, __change_kind FROM items_latest;
\catchup initial
\catchup latest
\doris UPDATE stock.items SET pieces = 19 WHERE id = 2;
\doris INSERT INTO stock.items VALUES (4, 'mug', 40);
\doris DELETE FROM stock.items WHERE id = 3;
\doris UPDATE stock.items SET pieces = 18 WHERE id = 2;
\catchup initial
\catchup latest
\stop initial
\stop latest

\echo == snapshot: the rows of now
SELECT * FROM items ORDER BY id;

\echo == initial: the rows as they were when the read began, then their changes
SELECT id, name, pieces, kind FROM seen_initial ORDER BY tso NULLS FIRST, id, kind DESC;

\echo == latest: the changes since the read began
SELECT id, name, pieces, kind FROM seen_latest ORDER BY tso, id, kind DESC;

\echo == from-timestamp: the changes since an instant, every one of them (detail)
SELECT * FROM items_detail;

\echo == from-timestamp, min_delta: what is left of them, by key
SELECT * FROM items_net ORDER BY id;

\echo == from-timestamp, append_only: what was inserted
SELECT * FROM items_inserted;
