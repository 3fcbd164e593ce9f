-- Writes rows by way of an object store: they are staged as objects, and one INSERT in Doris takes them from there.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -f examples/tvf_write.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME, DORIS_PASSWORD, DORIS_S3_ENDPOINT, S3_BUCKET,
-- S3_ACCESS_KEY and S3_SECRET_KEY (this program and Doris must both reach the store) and leave --sandbox out.
-- Ends with an error if a row is missing.

\echo == Two tables in Doris
\doris CREATE DATABASE IF NOT EXISTS depot;
\doris CREATE TABLE depot.parts (
    id BIGINT NOT NULL,
    name VARCHAR(50) NOT NULL,
    price DECIMAL(9, 2),
    tags ARRAY<STRING>,
    packed DATETIME(3)
) UNIQUE KEY(id)
DISTRIBUTED BY HASH(id) BUCKETS 2
PROPERTIES ("replication_num" = "1", "enable_unique_key_merge_on_write" = "true");
\doris CREATE TABLE depot.moves (id BIGINT, part BIGINT, amount INT) DUPLICATE KEY(id)
DISTRIBUTED BY HASH(id) BUCKETS 2 PROPERTIES ("replication_num" = "1");

-- JSON lines, the default; the last column of the sink says what becomes of a row.
CREATE EXTERNAL TABLE parts STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'jdbc-url' '${jdbc_url}',
    'table.identifier' 'depot.parts',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.write-mode' 'TVF',
    'sink.s3.endpoint' '${s3_endpoint}',
    'sink.s3.region' '${env:S3_REGION:-us-east-1}',
    'sink.s3.bucket' '${env:S3_BUCKET:-depot}',
    'sink.s3.prefix' 'stage/parts',
    'sink.s3.access-key' '${env:S3_ACCESS_KEY:-sandbox-access}',
    'sink.s3.secret-key' '${env:S3_SECRET_KEY:-sandbox-secret}',
    'sink.s3.path-style-access' 'true',
    'sink.change-kind-column' 'kind'
);
-- Parquet, by two writers; the objects are removed once their rows are in the table.
CREATE EXTERNAL TABLE moves STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'jdbc-url' '${jdbc_url}',
    'table.identifier' 'depot.moves',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.write-mode' 'TVF',
    'sink.properties.format' 'parquet',
    'sink.parallelism' '2',
    'sink.s3.endpoint' '${s3_endpoint}',
    'sink.s3.region' '${env:S3_REGION:-us-east-1}',
    'sink.s3.bucket' '${env:S3_BUCKET:-depot}',
    'sink.s3.prefix' 'stage/moves',
    'sink.s3.access-key' '${env:S3_ACCESS_KEY:-sandbox-access}',
    'sink.s3.secret-key' '${env:S3_SECRET_KEY:-sandbox-secret}',
    'sink.s3.path-style-access' 'true',
    'sink.s3.clean-up' 'true'
);

\echo == One statement, one INSERT in Doris: inserts, an update, a delete, in their order
INSERT INTO parts VALUES
    (1, 'bolt',  0.10, ['steel', 'm8'], TIMESTAMP '2024-02-29 10:00:00.125', '+I'),
    (2, 'nut',   0.05, [],              NULL,                                '+I'),
    (3, 'rivet', NULL, NULL,            TIMESTAMP '2024-03-01 08:30:00',     '+I'),
    (2, 'nut',   0.06, ['m8'],          NULL,                                '+U'),
    (3, 'rivet', NULL, NULL,            NULL,                                '-D'),
    (4, 'it''s a "part" \ with, odd ; text', 99.99, ['a,b', 'c"d'], NULL,    '+I');
INSERT INTO moves SELECT value, 1 + value % 4, CAST(value % 7 AS INT) FROM generate_series(1, 100000);

\echo == What Doris has
SELECT id, name, price, tags, packed FROM parts ORDER BY id;
\assert SELECT count(*) = 3 AS "three parts are left", sum(price) = 100.15 AS "with the last price of each" FROM parts;
\assert SELECT count(*) = 100000 AS "every move", count(DISTINCT id) = 100000 AS "once", sum(amount) = 300000 AS "sum" FROM moves;
\echo Every row arrived once.
