-- Counts visitors exactly: Doris makes a BITMAP of the user ids while they are loaded.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -q -f examples/bitmap.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave --sandbox out.

\doris CREATE DATABASE IF NOT EXISTS web;
\doris DROP TABLE IF EXISTS web.page_uv;
\doris CREATE TABLE web.page_uv (dt DATE, page VARCHAR(32), user_id BITMAP BITMAP_UNION)
AGGREGATE KEY(dt, page) DISTRIBUTED BY HASH(dt) BUCKETS 1 PROPERTIES ("replication_num" = "1");

-- `user_id` is declared as what the rows have; the last item of `columns` says what Doris makes of it.
CREATE EXTERNAL TABLE page_uv (dt DATE, page VARCHAR, user_id BIGINT) STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'web.page_uv',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.properties.columns' 'dt,page,user_id,user_id=to_bitmap(user_id)'
);

INSERT INTO page_uv VALUES
    (DATE '2027-01-01', 'home', 1), (DATE '2027-01-01', 'home', 2), (DATE '2027-01-01', 'home', 1),
    (DATE '2027-01-01', 'shop', 2), (DATE '2027-01-02', 'home', 3);
-- Later loads add to the sets that are there.
INSERT INTO page_uv VALUES (DATE '2027-01-01', 'home', 3), (DATE '2027-01-01', 'home', 2);

\echo == Visitors of each page and day, in Doris
\doris SELECT dt, page, BITMAP_UNION_COUNT(user_id) AS visitors FROM web.page_uv GROUP BY dt, page ORDER BY dt, page;

-- The counts as a table that DataFusion can read.
\doris DROP TABLE IF EXISTS web.visitors;
\doris CREATE TABLE web.visitors (dt DATE, page VARCHAR(32), visitors BIGINT)
DUPLICATE KEY(dt, page) DISTRIBUTED BY HASH(dt) BUCKETS 1 PROPERTIES ("replication_num" = "1");
\doris INSERT INTO web.visitors SELECT dt, page, BITMAP_UNION_COUNT(user_id) FROM web.page_uv GROUP BY dt, page;
CREATE EXTERNAL TABLE visitors STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'web.visitors',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);
\assert SELECT count(*) = 3 AS "three pages and days", sum(visitors) = 5 AS "five visitors" FROM visitors;
\assert SELECT visitors = 3 AS "three on the first day" FROM visitors WHERE dt = DATE '2027-01-01' AND page = 'home';
