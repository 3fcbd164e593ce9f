use super::Fixture;
use crate::engine::{Privilege, Protocol};
use crate::session::Session;

async fn code(session: &mut Session, sql: &str) -> u16 {
    match session.execute(sql).await {
        Ok(_) => 0,
        Err(error) => error.code,
    }
}

async fn fixture() -> (Fixture, Session) {
    let mut f = Fixture::with_database().await;
    let table = "(k INT NULL, v INT NULL) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES (\"replication_num\" = \"1\")";
    f.run(&format!(
        "CREATE TABLE t {table}; CREATE TABLE s {table}; CREATE DATABASE e; CREATE VIEW w AS SELECT k FROM t"
    ))
    .await;
    f.run("CREATE USER 'u'@'%' IDENTIFIED BY 'pw'").await;
    let session = f.engine.open_session("u", "10.0.0.9", Protocol::Mysql);
    (f, session)
}

#[tokio::test]
async fn without_privileges_nothing_is_open() {
    let (_f, mut u) = fixture().await;
    for (sql, expected) in [
        ("USE d", 1044),
        ("SELECT * FROM d.t", 1142),
        ("SELECT * FROM d.w", 1142),
        ("INSERT INTO d.t VALUES (1, 1)", 1142),
        ("DELETE FROM d.t WHERE k = 1", 1142),
        ("TRUNCATE TABLE d.t", 1142),
        ("DROP TABLE d.t", 1142),
        ("CREATE TABLE d.x (k INT) DISTRIBUTED BY HASH(k) BUCKETS 1", 1142),
        ("CREATE VIEW d.x AS SELECT 1 AS a", 1142),
        ("CREATE DATABASE x", 1044),
        ("DROP DATABASE d", 1044),
        ("DESC d.t", 1142),
        ("SHOW CREATE TABLE d.t", 1142),
        ("SHOW BACKENDS", 1227),
        ("CREATE USER x", 1227),
        ("GRANT SELECT_PRIV ON *.*.* TO u", 1227),
        ("SHOW ALL GRANTS", 1227),
        ("SET PASSWORD FOR root = PASSWORD('x')", 1227),
        ("SELECT 1", 0),
        ("USE information_schema", 0),
        ("SHOW GRANTS", 0),
        ("SHOW FRONTENDS", 0),
    ] {
        assert_eq!(code(&mut u, sql).await, expected, "{sql}");
    }
    let error = u.execute("SELECT * FROM d.t").await.expect_err("denied");
    assert_eq!(error.text(), "SELECT command denied to user 'u'@'10.0.0.9' for table 't'");
    assert_eq!(error.state, "42000");
}

#[tokio::test]
async fn grants_open_what_they_name_and_revokes_close_it() {
    let (mut f, mut u) = fixture().await;
    f.run("GRANT SELECT_PRIV, LOAD_PRIV ON internal.d.t TO 'u'@'%'").await;
    for (sql, expected) in [
        ("USE d", 0),
        ("SELECT * FROM t", 0),
        ("INSERT INTO t VALUES (1, 1)", 0),
        ("SELECT * FROM s", 1142),
        ("INSERT INTO t SELECT * FROM s", 1142),
        ("SELECT * FROM w", 1142),
        ("DROP TABLE t", 1142),
    ] {
        assert_eq!(code(&mut u, sql).await, expected, "{sql}");
    }
    let engine = std::sync::Arc::clone(&f.engine);
    engine.check_privilege("u", "d", "t", Privilege::Load).expect("granted");
    let refused = engine.check_privilege("u", "d", "s", Privilege::Load).expect_err("not granted");
    assert_eq!(refused.text(), "Access denied; you need (at least one of) the (LOAD) privilege(s) for this operation");
    f.session = u;
    assert_eq!(f.rows("SHOW TABLES").await, ["t"]);
    assert_eq!(f.rows("SHOW DATABASES").await, ["d", "information_schema", "mysql"]);
    assert!(f.rows("SHOW GRANTS").await[0].contains("internal.d.t: Select_priv,Load_priv"));
    f.session = f.engine.open_session("root", "127.0.0.1", Protocol::Mysql);
    f.run("USE d; REVOKE LOAD_PRIV ON d.t FROM u; GRANT SELECT_PRIV ON d.w TO u").await;
    let mut u = f.engine.open_session("u", "10.0.0.9", Protocol::Mysql);
    assert_eq!(code(&mut u, "INSERT INTO d.t VALUES (1, 1)").await, 1142);
    assert_eq!(code(&mut u, "SELECT * FROM d.w").await, 0, "a view needs no privilege on its tables");
    f.run("GRANT ALL ON d.* TO u").await;
    assert_eq!(code(&mut u, "DROP TABLE d.s; CREATE DATABASE d2").await, 1044);
    f.run("GRANT ADMIN_PRIV ON *.*.* TO u").await;
    assert_eq!(code(&mut u, "CREATE DATABASE d2; SHOW BACKENDS; CREATE USER v").await, 0);
}

#[tokio::test]
async fn roles_carry_privileges() {
    let (mut f, mut u) = fixture().await;
    f.run("CREATE ROLE r; GRANT SELECT_PRIV ON d.* TO ROLE 'r'; GRANT 'r' TO u").await;
    assert_eq!(code(&mut u, "SELECT * FROM d.t, d.s").await, 0);
    assert!(f.rows("SHOW ROLES").await[0].starts_with("r||'u'@'%'|NULL|NULL|internal.d: Select_priv"));
    f.run("REVOKE 'r' FROM u").await;
    assert_eq!(code(&mut u, "SELECT * FROM d.t").await, 1142);
    f.run("CREATE USER v DEFAULT ROLE 'r'; DROP ROLE r").await;
    let mut v = f.engine.open_session("v", "10.0.0.9", Protocol::Mysql);
    assert_eq!(code(&mut v, "SELECT * FROM d.t").await, 1142);
    for (sql, text) in [
        ("DROP ROLE r", "Role r does not exist"),
        ("GRANT 'r' TO u", "Role r does not exist"),
        ("GRANT ADMIN_PRIV ON d.* TO u", "ADMIN_PRIV and NODE_PRIV can only be granted/revoked on *.*.*"),
        ("GRANT NO_PRIV ON d.* TO u", "Unknown privilege: NO_PRIV"),
        ("GRANT SELECT_PRIV ON d.* TO nobody", "User 'nobody'@'%' does not exist"),
        ("CREATE USER u", "User 'u'@'%' already exist"),
        ("DROP USER root", "Can not drop user root"),
    ] {
        assert_eq!(f.error(sql).await.text(), text);
    }
}

#[tokio::test]
async fn passwords_and_hosts_decide_who_comes_in() {
    let (mut f, _) = fixture().await;
    assert!(f.engine.authenticate("u", "pw") && !f.engine.authenticate("u", ""));
    f.run("ALTER USER u IDENTIFIED BY 'new'; CREATE USER 'h'@'10.0.%' IDENTIFIED BY PASSWORD '*94BDCEBE19083CE2A1F959FD02F964C7AF4CFC29'").await;
    assert!(f.engine.authenticate("u", "new") && !f.engine.authenticate("u", "pw"));
    assert!(f.engine.authenticate_from("h", "10.0.3.4", "test"));
    assert!(!f.engine.authenticate_from("h", "10.1.3.4", "test"));
    f.run("SET PASSWORD FOR 'u' = PASSWORD('third'); CREATE USER IF NOT EXISTS u; ALTER USER IF EXISTS nobody IDENTIFIED BY 'x'").await;
    assert!(f.engine.authenticate("u", "third"));
    f.run("DROP USER u; DROP USER IF EXISTS u").await;
    assert!(!f.engine.authenticate("u", "third"));
}
