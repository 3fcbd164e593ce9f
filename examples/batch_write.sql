-- Batch write: rows are kept until there are enough of them for a load, or until they are old.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -f examples/batch_write.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave --sandbox out. Ends
-- with an error if a row is missing.

\doris CREATE DATABASE IF NOT EXISTS batch_write;
\doris DROP TABLE IF EXISTS batch_write.readings;
\doris CREATE TABLE batch_write.readings (
    id BIGINT NOT NULL,
    sensor VARCHAR(20),
    value DOUBLE
) DUPLICATE KEY(id)
DISTRIBUTED BY HASH(id) BUCKETS 4
PROPERTIES ("replication_num" = "1");

CREATE EXTERNAL TABLE readings STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'batch_write.readings',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.write-mode' 'STREAM_LOAD_BATCH',
    'sink.buffer-flush.max-rows' '10000',
    'sink.buffer-flush.max-bytes' '10MB',
    'sink.buffer-flush.interval' '5s',
    'sink.flush.queue-size' '2',
    'sink.properties.format' 'json'
);

\echo == 25000 rows in loads of 10000, each visible as it lands
INSERT INTO readings SELECT value, concat('s', value % 7), value / 4.0 FROM generate_series(1, 25000);
SELECT count(*) AS rows, count(DISTINCT id) AS ids, min(value) AS least, max(value) AS most FROM readings;
\assert SELECT count(*) = 25000 AND count(DISTINCT id) = 25000 FROM readings;
\assert_empty SELECT id FROM readings WHERE sensor <> concat('s', id % 7) OR value <> id / 4.0;

\echo == the same, visible together: loads are committed at the end of the statement
CREATE EXTERNAL TABLE together STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'batch_write.readings',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.enable.batch-mode' 'true',
    'sink.enable-2pc' 'true',
    'sink.buffer-flush.max-rows' '10000'
);
INSERT INTO together SELECT value, 'late', NULL FROM generate_series(25001, 50000);
\assert SELECT count(*) = 50000 AND count(DISTINCT id) = 50000 FROM readings;
SELECT count(*) AS rows, count(value) AS with_value FROM readings;
