-- Mirrors a Doris table into another one while it changes: first its rows, then every insert, update and delete.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -f examples/mirror.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave --sandbox out.
-- Ends with an error if the two tables differ.

\echo == Two tables in Doris: `source` keeps a changelog, `mirror` is to become its copy
\doris CREATE DATABASE school;
\doris CREATE TABLE school.source (
    id INT NOT NULL,
    name VARCHAR(50) NOT NULL,
    grade DECIMAL(4, 2),
    enrolled DATE,
    note STRING
) UNIQUE KEY(id)
DISTRIBUTED BY HASH(id) BUCKETS 4
PROPERTIES (
    "replication_num" = "1",
    "enable_unique_key_merge_on_write" = "true",
    "changelog.enable" = "true",
    "changelog.need_historical_value" = "true"
);
\doris CREATE TABLE school.mirror (
    id INT NOT NULL,
    name VARCHAR(50) NOT NULL,
    grade DECIMAL(4, 2),
    enrolled DATE,
    note STRING
) UNIQUE KEY(id)
DISTRIBUTED BY HASH(id) BUCKETS 2
PROPERTIES ("replication_num" = "1", "enable_unique_key_merge_on_write" = "true");

-- The tables as DataFusion sees them; their columns come from Doris.
CREATE EXTERNAL TABLE source STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'school.source',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);
CREATE EXTERNAL TABLE mirror STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'school.mirror',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);
-- The source without an end: its rows as they are, then its changes. Adds the column __change_kind.
CREATE EXTERNAL TABLE source_changelog STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'school.source',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'source.scan.mode' 'initial',
    'source.changelog.poll-interval' '1s'
);
-- The mirror as a sink that takes that column as change kind: deletes become deletes.
CREATE EXTERNAL TABLE mirror_sink STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'school.mirror',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.change-kind-column' '__change_kind'
);

\echo == The first students, by Stream Load
INSERT INTO source VALUES
    (1, 'Ada',     5.75, DATE '2023-09-01', 'likes "engines"'),
    (2, 'Blaise',  5.10, DATE '2023-09-01', NULL),
    (3, 'Carl',    6.00, DATE '2024-02-15', 'sums 1..100; fast'),
    (4, 'Dorothy', 4.90, DATE '2024-02-15', ''),
    (5, 'Émilie',  5.50, NULL,              'café, \ and ''quotes'''),
    (6, 'Fibonacci', NULL, DATE '2024-09-02', '1, 1, 2, 3');

\echo == The job starts: the snapshot, then changes as they happen
\job mirror INSERT INTO mirror_sink SELECT * FROM source_changelog;
\catchup mirror 60
SELECT count(*) AS mirrored FROM mirror;

\echo == Changes while it runs: inserts, updates, a new key, deletes
\doris INSERT INTO school.source VALUES
    (7, 'Grace', 5.95, '2024-09-02', 'found a bug'),
    (8, 'Hypatia', 5.80, NULL, NULL);
\doris UPDATE school.source SET grade = 5.25, note = 'bets on it' WHERE id = 2;
\doris DELETE FROM school.source WHERE id = 4;
-- A key never changes in place: the old row goes, and one with the new key comes.
\doris DELETE FROM school.source WHERE id = 3;
\doris INSERT INTO school.source VALUES (33, 'Carl', 6.00, '2024-02-15', 'sums 1..100; fast');
\catchup mirror 60
SELECT id, name, grade FROM mirror ORDER BY id;

\echo == More changes: one row many times, one that comes and goes, one that goes and comes back
\doris UPDATE school.source SET grade = 5.00 WHERE id = 1;
\doris UPDATE school.source SET grade = 5.50 WHERE id = 1;
\doris UPDATE school.source SET grade = 6.00 WHERE id = 1;
\doris INSERT INTO school.source VALUES (9, 'Isaac', 5.00, NULL, 'left early');
\doris DELETE FROM school.source WHERE id = 9;
\doris DELETE FROM school.source WHERE id = 6;
\doris INSERT INTO school.source VALUES (6, 'Leonardo', 5.40, '2024-09-02', 'same as Fibonacci');
INSERT INTO source VALUES (10, 'Jakob', 4.75, DATE '2025-02-17', NULL);
\catchup mirror 60
\jobs
\stop mirror

\echo == source
SELECT * FROM source ORDER BY id;
\echo == mirror
SELECT * FROM mirror ORDER BY id;

\echo == Are they equal?
\assert_empty SELECT * FROM source EXCEPT SELECT * FROM mirror;
\assert_empty SELECT * FROM mirror EXCEPT SELECT * FROM source;
SELECT (SELECT count(*) FROM source) AS source_rows, (SELECT count(*) FROM mirror) AS mirror_rows,
       (SELECT count(*) FROM source) = (SELECT count(*) FROM mirror) AS equal;
\assert SELECT (SELECT count(*) FROM source) = (SELECT count(*) FROM mirror) AS "row counts are equal";
-- And they hold what the changes above must give.
\assert SELECT count(*) = 8 AS "eight students", sum(grade) = 44.65 AS "sum of grades" FROM mirror;
\echo The tables are equal.
