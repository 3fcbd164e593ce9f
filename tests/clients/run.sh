#!/usr/bin/env bash
# Clients that nobody here wrote, against a standalone doris-sandbox: curl, the mariadb (or mysql) client, and from PyPI
# the ADBC driver for Flight SQL, pyarrow, PyMySQL, MySQL Connector/Python, dbt-doris, doris-alchemy, DorisClient and
# mcp-doris-xues87. Each check names the section of the protocol it looks at and prints one line.
#
# requirements.txt says why others are not here: dbt-for-apache-doris needs a dbt-core whose parser no registry has,
# mcp-doris and doris-mcp-server need Python 3.12, pydoris compiles against MySQL's C library.
set -euo pipefail
cd "$(dirname "$0")/../.."

cargo build --quiet --locked --bin doris-sandbox
binary="${CARGO_TARGET_DIR:-target}/debug/doris-sandbox"
work=$(mktemp -d)
mkfifo "$work/ready"
"$binary" --user admin --password 's3cret:x' >"$work/ready" &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
read -r ready <"$work/ready"

address() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" <<<"$ready"; }
fe=$(address fe_http) be=$(address be_http) mysql_address=$(address mysql)
auth=admin:s3cret:x
checks=0

pass() { checks=$((checks + 1)); printf 'ok %2d  %s\n' "$checks" "$1"; }
fail() { printf 'FAILED  %s\n%s\n' "$1" "$2" >&2; exit 1; }

# contains NAME TEXT PATTERN
contains() { if [[ "$2" == *"$3"* ]]; then pass "$1"; else fail "$1: expected $3" "$2"; fi; }

client=$(command -v mariadb || command -v mysql)
sql() {
    MYSQL_PWD=${password-s3cret:x} "$client" --host="${mysql_address%:*}" --port="${mysql_address##*:}" --user=admin \
        --protocol=tcp --batch --skip-column-names "$@" 2>&1
}

# MySQL protocol (F)
contains "login and version" "$(sql -e 'SELECT VERSION()')" "5.7.99"
contains "wrong password is 1045" "$(password=no sql -e 'SELECT 1' || true)" "ERROR 1045 (28000): Access denied for user 'admin@127.0.0.1' (using password: YES)"
sql <<'SQL'
CREATE DATABASE shop;
USE shop;
CREATE TABLE items (id INT NOT NULL, name VARCHAR(8), price DECIMAL(10,2))
UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
PROPERTIES ("replication_num" = "1", "enable_unique_key_merge_on_write" = "true");
INSERT INTO items VALUES (1, 'pen', 1.5), (2, NULL, 20);
SQL
contains "create, insert and select" "$(sql -e 'SELECT * FROM shop.items ORDER BY id')" $'1\tpen\t1.50\n2\tNULL\t20.00'
contains "show tables" "$(sql shop -e 'SHOW TABLES')" "items"
contains "unknown table" "$(sql -e 'SELECT * FROM shop.none' || true)" "ERROR 1105 (HY000)"
contains "unknown database at login" "$(sql nowhere -e 'SELECT 1' || true)" "ERROR 1049"

# Stream Load (A.8, B)
url="http://$fe/api/shop/items/_stream_load"
load() { curl --silent --show-error --location-trusted --user "$auth" --header 'column_separator: ,' "$@"; }
printf '3,cup,3\n4,mug,4\n' >"$work/good.csv"
printf '5,a name too long,5\n6,hat\n7,cap,7\n' >"$work/bad.csv"
answer=$(load --header 'Expect: 100-continue' --header 'label: first' --upload-file "$work/good.csv" "$url")
contains "load with Expect" "$answer" '"Status": "Success"'
contains "rows are counted" "$answer" '"NumberLoadedRows": 2'
answer=$(load --header 'Expect:' --upload-file "$work/good.csv" "$url")
contains "load without Expect is refused" "$answer" '{"status":"FAILED","msg":"There is no 100-continue header"}'
answer=$(load --header 'Expect: 100-continue' --header 'label: first' --upload-file "$work/good.csv" "$url")
contains "a used label" "$answer" '"Status": "Label Already Exists"'
contains "names its transaction" "$answer" 'Label [first] has already been used, relate to txn ['
answer=$(curl --silent --user admin:wrong --header 'Expect: 100-continue' --upload-file "$work/good.csv" "$url")
contains "a wrong password at the FE" "$answer" '"data":"Access denied for admin@127.0.0.1"'
answer=$(curl --silent --user admin:wrong --upload-file "$work/good.csv" "http://$be/api/shop/items/_stream_load")
contains "a wrong password at the BE" "$answer" '"Message": "[NOT_AUTHORIZED]'
answer=$(load --header 'Expect: 100-continue' --upload-file "$work/bad.csv" "$url")
contains "bad rows fail the load" "$answer" '"Message": "[DATA_QUALITY_ERROR]too many filtered rows"'
log=$(curl --silent "$(sed -n 's/.*"ErrorURL": "\([^"]*\)".*/\1/p' <<<"$answer")")
contains "the error log has the reason" "$log" 'column_name[name], the length of input is too long than schema'
contains "and the row" "$log" 'src line [6,hat]'
answer=$(load --header 'Expect: 100-continue' --header 'max_filter_ratio: 0.7' --upload-file "$work/bad.csv" "$url")
contains "unless the ratio allows them" "$answer" '"NumberFilteredRows": 2'

# Two-phase commit (C)
gzip --keep "$work/good.csv"
answer=$(load --header 'Expect: 100-continue' --header 'compress_type: gz' --header 'two_phase_commit: true' \
    --upload-file "$work/good.csv.gz" "$url")
id=$(sed -n 's/.*"TxnId": \([0-9]*\),.*/\1/p' <<<"$answer")
contains "pre-commit" "$answer" '"TwoPhaseCommit": "true"'
commit() {
    curl --silent --location-trusted --user "$auth" --request PUT --header "txn_id: $id" --header 'txn_operation: commit' \
        "http://$fe/api/shop/_stream_load_2pc"
}
contains "commit" "$(commit)" "transaction [$id] commit successfully."
contains "commit again" "$(commit)" "transaction [$id] is already visible, not pre-committed."

# REST (A)
answer=$(curl --silent --user "$auth" --data '{"stmt":"SELECT count(*) AS n FROM items"}' "http://$fe/api/query/default_cluster/shop")
contains "statement endpoint" "$answer" '"data":[[5]]'
contains "schema" "$(curl --silent --user "$auth" "http://$fe/api/shop/items/_schema")" '"keysType":"UNIQUE_KEYS"'

# Python
export DORIS_SANDBOX=$ready DORIS_PASSWORD=s3cret:x DORIS_USER=admin
export DORIS_HOST=${mysql_address%:*} DORIS_PORT=${mysql_address##*:}
clients=$PWD/tests/clients
venv="${CARGO_TARGET_DIR:-target}/clients-venv"
if ! cmp --silent "$clients/requirements.txt" "$venv/requirements.txt"; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$clients/requirements.txt"
    cp "$clients/requirements.txt" "$venv/requirements.txt"
fi
venv=$(cd "$venv" && pwd)
for script in adbc_client pymysql_client sqlalchemy_client mcp_client; do
    PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -W ignore "$clients/$script.py"
    pass "$script.py"
done

# dbt: the second build runs the incremental model on what is there and replaces the others.
dbt() { "$venv/bin/dbt" --quiet "$@" --project-dir "$work/dbt" --profiles-dir "$work/dbt" --target-path "$work/dbt/target" --log-path "$work/dbt/logs"; }
cp -r "$clients/dbt" "$work/dbt"
dbt build || fail "dbt build" "$(tail -50 "$work/dbt/logs/dbt.log")"
contains "dbt build: seed, table, incremental model, view and their tests (F.4, I)" \
    "$(sql dbt -e 'SELECT * FROM by_customer ORDER BY customer')" $'ann\t2\t15.5'
printf '4,cid,30,2024-01-04\n' >>"$work/dbt/seeds/orders.csv"
dbt build || fail "dbt build again" "$(tail -50 "$work/dbt/logs/dbt.log")"
contains "dbt build again" "$(sql dbt -e 'SELECT count(*) FROM orders_so_far')" "4"
contains "a view reads through" "$(sql dbt -e 'SELECT id FROM big_orders ORDER BY id')" $'1\n2\n4'

# TLS (A.2, D.1, F.1), several nodes (A.5) and faults, on a sandbox of its own
"$binary" --user admin --password 's3cret:x' --tls all --tls-ca-out "$work/ca.pem" --frontends 2 --backends 2 \
    --admin-port 0 >"$work/ready" &
second=$!
trap 'kill "$server" "$second" 2>/dev/null || true; rm -rf "$work"' EXIT
read -r ready <"$work/ready"
fe=$(address fe_http) https=$(address fe_https) mysql_address=$(address mysql) admin=$(address admin)
contains "MySQL over TLS" "$(sql --ssl-ca="$work/ca.pem" --ssl-verify-server-cert -e '\s' | grep '^SSL')" "Cipher in use"
contains "MySQL without TLS is served too" "$(sql --skip-ssl -e 'SELECT 1')" "1"
contains "HTTPS" "$(curl --silent --cacert "$work/ca.pem" "https://$https/api/health")" '"online_backend_num":2'
if curl --silent "https://$https/api/health" >/dev/null; then fail "HTTPS" "an unknown authority was trusted"; fi
pass "HTTPS: an unknown authority is not trusted"
DORIS_SANDBOX=$ready DORIS_CA="$work/ca.pem" PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -W ignore "$clients/tls_client.py"
pass "tls_client.py"
sql --skip-ssl -e 'CREATE DATABASE shop; CREATE TABLE shop.t (id INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ("replication_num" = "1")'
printf '1\n2\n' >"$work/ids.csv"
answer=$(curl --silent --location-trusted --cacert "$work/ca.pem" --user "$auth" --header 'Expect: 100-continue' \
    --upload-file "$work/ids.csv" "https://$https/api/shop/t/_stream_load")
contains "a load over HTTPS" "$answer" '"NumberLoadedRows": 2'
curl --silent --output /dev/null "http://$admin/faults" \
    --data '{"site": "fe", "when": "/api/health", "action": {"type": "status", "code": 503, "body": "down"}}'
contains "a fault is shown once" "$(curl --silent --cacert "$work/ca.pem" "https://$https/api/health")" "down"
contains "and recorded" "$(curl --silent "http://$admin/faults")" '"applied":[{'
curl --silent --output /dev/null --request POST "http://$admin/nodes/be/1/stop"
contains "a stopped BE is not alive" "$(sql --skip-ssl -e 'SHOW BACKENDS' | cut -f10 | sort | uniq)" "false"

# The binary
kill -TERM "$server"
if wait "$server"; then pass "SIGTERM ends the server with status 0"; else fail "SIGTERM" "exit status $?"; fi
printf '%s checks passed\n' "$checks"
