-- Writes Debezium change events to a UNIQUE KEY table, and checks what they made of it.
--
--   cargo run --bin datafusion-doris-cli -- --sandbox -f examples/debezium.sql
--
-- Against a cluster: set DORIS_FENODES, DORIS_JDBC_URL, DORIS_USERNAME and DORIS_PASSWORD and leave --sandbox out.

\doris CREATE DATABASE IF NOT EXISTS shop;
\doris DROP TABLE IF EXISTS shop.orders;
\doris CREATE TABLE shop.orders (id INT NOT NULL, name VARCHAR(20), price DECIMAL(10, 2))
UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
PROPERTIES ("replication_num" = "1", "enable_unique_key_merge_on_write" = "true");

CREATE EXTERNAL TABLE order_events STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'shop.orders',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}',
    'sink.change-format' 'debezium-json'
);
CREATE EXTERNAL TABLE orders STORED AS DORIS OPTIONS (
    'fenodes' '${fenodes}',
    'table.identifier' 'shop.orders',
    'username' '${env:DORIS_USERNAME:-root}',
    'password' '${env:DORIS_PASSWORD:-}'
);

-- Inserts, an update, an update of a key, a delete. Events are applied in their order.
INSERT INTO order_events VALUES
    ('{"op":"r","before":null,"after":{"id":1,"name":"pen","price":"1.50"}}'),
    ('{"op":"c","before":null,"after":{"id":2,"name":"ink","price":"7.00"}}'),
    ('{"op":"u","before":{"id":1,"name":"pen","price":"1.50"},"after":{"id":1,"name":"pen","price":"1.75"}}'),
    ('{"op":"u","before":{"id":2,"name":"ink","price":"7.00"},"after":{"id":3,"name":"ink","price":"7.00"}}'),
    ('{"op":"c","before":null,"after":{"id":4,"name":"cap","price":null}}'),
    ('{"op":"d","before":{"id":4,"name":"cap","price":null},"after":null}');

SELECT * FROM orders ORDER BY id;
\assert_empty
    SELECT id, name, price FROM orders EXCEPT (VALUES (1, 'pen', 1.75), (3, 'ink', 7.00));
\assert_empty
    (VALUES (1, 'pen', 1.75), (3, 'ink', 7.00)) EXCEPT SELECT id, name, price FROM orders;
