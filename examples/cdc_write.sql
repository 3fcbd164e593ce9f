-- Writes what changed in one table to two others: a copy, and a table with another key.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -q -f examples/cdc_write.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave --sandbox out.
-- The changes are read up to the moment at which a statement starts (bounded mode `latest`), so it ends; mirror.sql does
-- the same without an end.

\doris CREATE DATABASE IF NOT EXISTS hr;
\doris DROP TABLE IF EXISTS hr.people;
\doris CREATE TABLE hr.people (id INT NOT NULL, mail VARCHAR(20) NOT NULL, team VARCHAR(10))
UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
PROPERTIES (
    "replication_num" = "1",
    "enable_unique_key_merge_on_write" = "true",
    "changelog.enable" = "true",
    "changelog.need_historical_value" = "true"
);
\doris DROP TABLE IF EXISTS hr.copy;
\doris CREATE TABLE hr.copy (id INT NOT NULL, mail VARCHAR(20), team VARCHAR(10))
UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
PROPERTIES ("replication_num" = "1", "enable_unique_key_merge_on_write" = "true");
\doris DROP TABLE IF EXISTS hr.by_mail;
\doris CREATE TABLE hr.by_mail (mail VARCHAR(20) NOT NULL, id INT, team VARCHAR(10))
UNIQUE KEY(mail) DISTRIBUTED BY HASH(mail) BUCKETS 2
PROPERTIES ("replication_num" = "1", "enable_unique_key_merge_on_write" = "true");

CREATE EXTERNAL TABLE people STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'hr.people',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);
CREATE EXTERNAL TABLE people_changes STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'hr.people',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'source.scan.mode' 'from-timestamp',
    'source.scan.timestamp' '2020-01-01 00:00:00',
    'source.scan.bounded-mode' 'latest',
    'source.changelog.max-window' '10000d'
);
CREATE EXTERNAL TABLE copy STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'hr.copy',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.change-kind-column' '__change_kind'
);
CREATE EXTERNAL TABLE by_mail STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'hr.by_mail',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.change-kind-column' '__change_kind'
);

\doris INSERT INTO hr.people VALUES (1, 'ada@x', 'red'), (2, 'bob@x', 'red'), (3, 'cyd@x', 'blue');
\doris UPDATE hr.people SET mail = 'ada@y' WHERE id = 1;
\doris UPDATE hr.people SET mail = 'ada@x', team = 'blue' WHERE id = 2;
\doris DELETE FROM hr.people WHERE id = 3;

\echo == The changes
SELECT * FROM people_changes;

\echo == Their effect on a table with the same key
INSERT INTO copy SELECT * FROM people_changes;
SELECT id, mail, team FROM copy ORDER BY id;
\assert_empty SELECT id, mail, team FROM copy EXCEPT SELECT * FROM people;
\assert_empty SELECT * FROM people EXCEPT SELECT id, mail, team FROM copy;

\echo == And on one by mail: an update of the mail deletes the old row and inserts the new one, in order
INSERT INTO by_mail SELECT mail, id, team, __change_kind FROM people_changes;
SELECT mail, id, team FROM by_mail ORDER BY mail;
\assert_empty SELECT id, mail, team FROM by_mail EXCEPT SELECT * FROM people;
\assert_empty SELECT * FROM people EXCEPT SELECT id, mail, team FROM by_mail;
\assert SELECT count(*) = 2 AS "two people" FROM by_mail;
