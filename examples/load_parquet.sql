-- Loads a Parquet file and a CSV file into Doris and compares what Doris gives back with the files.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -f examples/load_parquet.sql
--
-- PARQUET_FILE and CSV_FILE name other files of the same shape, such as flights-3m.parquet and birdstrikes.csv of
-- vega-datasets. Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave
-- --sandbox out. Ends with an error if anything differs.

\doris CREATE DATABASE IF NOT EXISTS files;

\echo == Parquet: flights
CREATE EXTERNAL TABLE flights_file STORED AS PARQUET
LOCATION '${env:PARQUET_FILE:-tests/fixtures/flights-small.parquet}';

\doris DROP TABLE IF EXISTS files.flights;
\doris CREATE TABLE files.flights (
    `date` DATETIME,
    delay BIGINT,
    distance BIGINT,
    origin VARCHAR(8),
    destination VARCHAR(8)
) DUPLICATE KEY(`date`)
DISTRIBUTED BY HASH(origin, destination) BUCKETS 8
PROPERTIES ("replication_num" = "1");

CREATE EXTERNAL TABLE flights STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'files.flights',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);

INSERT INTO flights SELECT * FROM flights_file;

SELECT 'file' AS "where", count(*) AS flights, sum(delay) AS delay, sum(distance) AS distance FROM flights_file
UNION ALL
SELECT 'doris', count(*), sum(delay), sum(distance) FROM flights
ORDER BY 1;
\assert_empty
    SELECT count(*), sum(delay), sum(distance), min("date"), max("date") FROM flights
    EXCEPT
    SELECT count(*), sum(delay), sum(distance), min("date"), max("date") FROM flights_file;
\assert_empty SELECT * FROM flights EXCEPT SELECT * FROM flights_file;
\assert_empty SELECT * FROM flights_file EXCEPT SELECT * FROM flights;

\echo == CSV: wildlife strikes
-- The file's own column names hold blanks and signs; a column list gives them others, in the order of the file.
CREATE EXTERNAL TABLE strikes_file (
    airport VARCHAR,
    aircraft VARCHAR,
    damage VARCHAR,
    flight_date DATE,
    operator VARCHAR,
    state VARCHAR,
    phase VARCHAR,
    wildlife_size VARCHAR,
    species VARCHAR,
    time_of_day VARCHAR,
    cost_other BIGINT,
    cost_repair BIGINT,
    cost_total BIGINT,
    speed BIGINT
) STORED AS CSV
LOCATION '${env:CSV_FILE:-tests/fixtures/birdstrikes-small.csv}'
OPTIONS ('format.has_header' 'true');

\doris DROP TABLE IF EXISTS files.strikes;
\doris CREATE TABLE files.strikes (
    airport VARCHAR(200),
    aircraft VARCHAR(100),
    damage VARCHAR(40),
    flight_date DATE,
    operator VARCHAR(100),
    state VARCHAR(40),
    phase VARCHAR(40),
    wildlife_size VARCHAR(20),
    species VARCHAR(100),
    time_of_day VARCHAR(20),
    cost_other BIGINT,
    cost_repair BIGINT,
    cost_total BIGINT,
    speed BIGINT
) DUPLICATE KEY(airport)
DISTRIBUTED BY HASH(airport) BUCKETS 4
PROPERTIES ("replication_num" = "1");

CREATE EXTERNAL TABLE strikes STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'files.strikes',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);

INSERT INTO strikes SELECT * FROM strikes_file;

SELECT 'file' AS "where", count(*) AS strikes, sum(cost_total) AS cost, count(speed) AS speeds, sum(speed) AS speed
FROM strikes_file
UNION ALL
SELECT 'doris', count(*), sum(cost_total), count(speed), sum(speed) FROM strikes
ORDER BY 1;
\assert_empty
    SELECT count(*), sum(cost_total), count(speed), sum(speed) FROM strikes
    EXCEPT
    SELECT count(*), sum(cost_total), count(speed), sum(speed) FROM strikes_file;
\assert_empty SELECT * FROM strikes EXCEPT SELECT * FROM strikes_file;
\assert_empty SELECT * FROM strikes_file EXCEPT SELECT * FROM strikes;

\echo Doris gives back what the files hold.
