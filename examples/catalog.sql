-- Shows a whole cluster as a catalog: tables are read, written, made and dropped without declaring them.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -f examples/catalog.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave --sandbox out.
-- `--catalog doris` on the command line does what this first statement does.

CREATE EXTERNAL CATALOG doris STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'jdbc-url' '${jdbc_url}',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'table.properties.replication_num' '1'
);

CREATE SCHEMA IF NOT EXISTS doris.catalog_demo;
DROP TABLE IF EXISTS doris.catalog_demo.readings;
DROP TABLE IF EXISTS doris.catalog_demo."DailyMean";

CREATE TABLE doris.catalog_demo.readings (
    at TIMESTAMP,
    sensor INT,
    value DOUBLE,
    PRIMARY KEY (sensor, at)
);
-- Columns of a key come first in Doris: named here, they may stand in any order.
INSERT INTO doris.catalog_demo.readings (at, sensor, value) VALUES
    (TIMESTAMP '2026-05-01 08:00:00', 1, 20.5),
    (TIMESTAMP '2026-05-01 09:00:00', 1, 21.5),
    (TIMESTAMP '2026-05-02 08:00:00', 1, 19.0),
    (TIMESTAMP '2026-05-02 08:00:00', 2, NULL);

-- The query is streamed into the new table; when it fails, there is none.
CREATE TABLE doris.catalog_demo."DailyMean" AS
SELECT sensor, CAST(at AS DATE) AS day, avg(value) AS mean FROM doris.catalog_demo.readings GROUP BY 1, 2;

USE doris.catalog_demo;
SELECT * FROM "DailyMean" ORDER BY sensor, day;
SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'catalog_demo' ORDER BY 1;

\assert SELECT count(*) = 3 AND sum(mean) = 40 FROM "DailyMean";
DROP TABLE "DailyMean";
\assert_empty SELECT * FROM information_schema.tables WHERE table_name = 'DailyMean';
