//! A cluster to test against, and the few calls that every test makes.

use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use datafusion_doris::client::DorisConnection;
use datafusion_doris::options::Secret;
use doris_sandbox::{Profile, Sandbox, SandboxBuilder};

static DATABASES: AtomicUsize = AtomicUsize::new(0);

/// Makes each test twice, for the builds that record changes: before the rename and after it. A test is a function of
/// the build.
macro_rules! on_both_builds {
    ($($name:ident),+ $(,)?) => {
        mod v5_0_changelog {
            $(#[tokio::test]
            async fn $name() {
                $crate::harness::if_served(doris_sandbox::Profile::V5_0Changelog, super::$name).await;
            })+
        }
        mod v5_0_binlog {
            $(#[tokio::test]
            async fn $name() {
                $crate::harness::if_served(doris_sandbox::Profile::V5_0Binlog, super::$name).await;
            })+
        }
    };
}
pub(crate) use on_both_builds;

/// Runs a test unless the cluster of the environment is of another build (`DORIS_PROFILE`).
pub async fn if_served<T: Future<Output = ()>>(profile: Profile, test: impl FnOnce(Profile) -> T) {
    if std::env::var_os("DORIS_FENODES").is_none() || profile == profile_of_environment() {
        test(profile).await;
    }
}

fn profile_of_environment() -> Profile {
    std::env::var("DORIS_PROFILE").map_or_else(|_| Profile::default(), |name| name.parse().expect("DORIS_PROFILE"))
}

/// Text rows of a statement sent to Doris itself.
pub type TextRows = Vec<Vec<Option<String>>>;

/// A cluster (embedded, or the one that `DORIS_FENODES` names) and a fresh database in it.
pub struct Cluster {
    fenodes: String,
    jdbc_url: String,
    username: String,
    password: String,
    database: String,
    profile: Profile,
    sandbox: Option<Sandbox>,
}

impl Cluster {
    /// The cluster of the environment, else a sandbox.
    pub async fn start() -> Self {
        Self::start_as(Profile::default()).await
    }

    /// The cluster of the environment, else a sandbox that is this build.
    pub async fn start_as(profile: Profile) -> Self {
        match std::env::var("DORIS_FENODES") {
            Ok(fenodes) => {
                let var = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_string());
                let cluster = Self {
                    fenodes,
                    jdbc_url: std::env::var("DORIS_JDBC_URL").expect("DORIS_JDBC_URL goes with DORIS_FENODES"),
                    username: var("DORIS_USERNAME", "root"),
                    password: var("DORIS_PASSWORD", ""),
                    database: unique_database(),
                    profile: profile_of_environment(),
                    sandbox: None,
                };
                cluster.with_database().await
            }
            Err(_) => Self::sandbox_as(profile).await,
        }
    }

    /// Always a sandbox: for tests that ask for faults or look at what the server saw.
    pub async fn sandbox() -> Self {
        Self::sandbox_as(Profile::default()).await
    }

    /// [`Cluster::sandbox`] that is this build.
    pub async fn sandbox_as(profile: Profile) -> Self {
        Self::of(Sandbox::builder().profile(profile)).await
    }

    /// A sandbox that is built in a special way.
    pub async fn of(builder: SandboxBuilder) -> Self {
        let sandbox = builder.user("root").password("s3cret").start().await.expect("sandbox starts");
        let cluster = Self {
            fenodes: sandbox.fenodes(),
            jdbc_url: sandbox.jdbc_url(),
            username: "root".to_string(),
            password: "s3cret".to_string(),
            database: unique_database(),
            profile: sandbox.engine().profile(),
            sandbox: Some(sandbox),
        };
        cluster.with_database().await
    }

    async fn with_database(self) -> Self {
        self.doris(&format!("CREATE DATABASE IF NOT EXISTS {}", self.database)).await;
        self
    }

    /// The sandbox behind this cluster.
    pub fn server(&self) -> &Sandbox {
        self.sandbox.as_ref().expect("this test runs on a sandbox")
    }

    /// `db.table` for a table of this test's database.
    pub fn table(&self, name: &str) -> String {
        format!("{}.{name}", self.database)
    }

    /// Name of this test's database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// FE addresses.
    pub fn fenodes(&self) -> &str {
        &self.fenodes
    }

    /// Address of the MySQL protocol, as option `jdbc-url`.
    pub fn jdbc_url(&self) -> &str {
        &self.jdbc_url
    }

    /// User of the cluster.
    pub fn username(&self) -> &str {
        &self.username
    }

    /// The user's password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Properties of a table that records its changes, with the rows as they were before if so asked.
    pub fn recording(&self, old_values: bool) -> &'static str {
        match (self.profile, old_values) {
            (Profile::V5_0Binlog, true) => {
                "'binlog.enable' = 'true', 'binlog.format' = 'ROW', 'binlog.need_historical_value' = 'true'"
            }
            (Profile::V5_0Binlog, false) => "'binlog.enable' = 'true', 'binlog.format' = 'ROW'",
            (_, true) => "'changelog.enable' = 'true', 'changelog.need_historical_value' = 'true'",
            (_, false) => "'changelog.enable' = 'true'",
        }
    }

    /// Creates a unique table that records its changes with their old values; its first column is the key.
    pub async fn changing_table(&self, name: &str, columns: &str) {
        self.unique_table(name, columns, self.recording(true)).await;
    }

    /// Creates a unique table whose first column is the key; `more` are further properties.
    pub async fn unique_table(&self, name: &str, columns: &str, more: &str) {
        let key = columns.split_whitespace().next().expect("a column");
        let more = if more.is_empty() { String::new() } else { format!(", {more}") };
        self.doris(&format!(
            "CREATE TABLE {{db}}.{name} ({columns}) UNIQUE KEY({key}) DISTRIBUTED BY HASH({key}) BUCKETS 3
             PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true'{more})"
        ))
        .await;
    }

    /// Creates a duplicate table whose first column is the key; `more` are further properties.
    pub async fn duplicate_table(&self, name: &str, columns: &str, more: &str) {
        let key = columns.split_whitespace().next().expect("a column");
        let more = if more.is_empty() { String::new() } else { format!(", {more}") };
        self.doris(&format!(
            "CREATE TABLE {{db}}.{name} ({columns}) DUPLICATE KEY({key}) DISTRIBUTED BY HASH({key}) BUCKETS 1
             PROPERTIES ('replication_num' = '1'{more})"
        ))
        .await;
    }

    /// Creates the table in which positions of consumers are kept.
    pub async fn offset_table(&self) {
        let columns = "consumer_id VARCHAR(256) NOT NULL, offset_timestamp DATETIME NOT NULL,
             update_time DATETIME(3) NOT NULL";
        self.unique_table("offsets", columns, "").await;
    }

    /// Sends statements to Doris itself; `{db}` stands for this test's database.
    pub async fn try_doris(&self, sql: &str) -> datafusion_doris::Result<TextRows> {
        let mut connection =
            DorisConnection::connect(&self.jdbc_url, &self.username, &Secret::new(&self.password)).await?;
        let outputs = connection.execute(&sql.replace("{db}", &self.database)).await?;
        Ok(outputs.into_iter().flat_map(|output| output.rows).collect())
    }

    /// [`Cluster::try_doris`] that must succeed.
    pub async fn doris(&self, sql: &str) -> TextRows {
        self.try_doris(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// First cell of a statement sent to Doris itself.
    pub async fn scalar(&self, sql: &str) -> String {
        let rows = self.doris(sql).await;
        rows.first().and_then(|row| row.first()).and_then(Clone::clone).unwrap_or_else(|| panic!("{sql}: no value"))
    }

    /// Waits until everything committed so far lies in an earlier second, and gives that second's successor as the
    /// server writes it.
    pub async fn next_second(&self) -> String {
        let clock = "SELECT FLOOR(CURRENT_TSO_PHYSICAL_TIME / 1000) FROM information_schema.tso_status";
        let second = self.scalar(clock).await;
        loop {
            let now = self.scalar(clock).await;
            if now != second {
                return self.scalar(&format!("SELECT FROM_UNIXTIME({now}, '%Y-%m-%d %H:%i:%s')")).await;
            }
        }
    }

    /// A DataFusion context that knows Doris.
    pub fn context(&self) -> SessionContext {
        datafusion_doris::session_context()
    }

    /// `CREATE EXTERNAL TABLE name STORED AS DORIS OPTIONS (…)` over `table` of this test's database.
    pub fn ddl(&self, name: &str, table: &str, options: &[(&str, &str)]) -> String {
        let mut all = vec![
            ("fenodes".to_string(), self.fenodes.clone()),
            ("jdbc-url".to_string(), self.jdbc_url.clone()),
            ("table.identifier".to_string(), self.table(table)),
            ("username".to_string(), self.username.clone()),
            ("password".to_string(), self.password.clone()),
        ];
        for (key, value) in options {
            all.retain(|(known, _)| known != key);
            all.push((key.to_string(), value.to_string()));
        }
        let list: Vec<String> = all.iter().map(|(k, v)| format!("'{k}' '{}'", v.replace('\'', "''"))).collect();
        format!("CREATE EXTERNAL TABLE {name} STORED AS DORIS OPTIONS ({})", list.join(", "))
    }

    /// `CREATE EXTERNAL CATALOG name STORED AS DORIS OPTIONS (…)` over this cluster.
    pub fn catalog_ddl(&self, name: &str, options: &[(&str, &str)]) -> String {
        let table = format!("'table.identifier' '{}', ", self.table("x"));
        let ddl = self.ddl(name, "x", options).replacen("EXTERNAL TABLE", "EXTERNAL CATALOG", 1);
        assert!(ddl.contains(&table), "{ddl}");
        ddl.replacen(&table, "", 1)
    }

    /// Declares an external table over `table`.
    pub async fn declare(&self, ctx: &SessionContext, name: &str, table: &str, options: &[(&str, &str)]) {
        run(ctx, &self.ddl(name, table, options)).await;
    }
}

fn unique_database() -> String {
    format!("it_{}_{}", std::process::id(), DATABASES.fetch_add(1, Ordering::Relaxed))
}

/// Runs one statement and gives its rows.
pub async fn try_run(ctx: &SessionContext, sql: &str) -> Result<Vec<RecordBatch>> {
    datafusion_doris::sql(ctx, sql).await?.collect().await
}

/// [`try_run`] that must succeed.
pub async fn run(ctx: &SessionContext, sql: &str) -> Vec<RecordBatch> {
    try_run(ctx, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Message of a statement that must fail.
pub async fn refusal(ctx: &SessionContext, sql: &str) -> String {
    match try_run(ctx, sql).await {
        Ok(batches) => panic!("{sql} succeeded:\n{}", text(&batches)),
        Err(error) => error.to_string(),
    }
}

/// Number of rows.
pub fn count(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// The rows as text, one line each, cells joined by ` | `, NULL as `NULL`.
pub fn lines(batches: &[RecordBatch]) -> Vec<String> {
    use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
    let options = FormatOptions::default().with_null("NULL");
    let mut out = Vec::new();
    for batch in batches {
        let cells: Vec<ArrayFormatter> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).expect("printable"))
            .collect();
        for row in 0..batch.num_rows() {
            let line: Vec<String> = cells.iter().map(|cell| cell.value(row).to_string()).collect();
            out.push(line.join(" | "));
        }
    }
    out
}

/// The rows as a table.
pub fn text(batches: &[RecordBatch]) -> String {
    pretty_format_batches(batches).expect("printable").to_string()
}
