//! What statements run on: the DataFusion context, the connection to Doris, and the embedded sandbox.
//!
//! This is the only module that knows the API of the connector and of the sandbox.

use std::collections::BTreeSet;
use std::env::{self, VarError};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::temporal_conversions::timestamp_ms_to_datetime;
use datafusion::prelude::{DataFrame, SessionContext};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, dialect_from_str};
use datafusion_doris::catalog::DorisCatalog;
use datafusion_doris::checkpoint::SourcePosition;
use datafusion_doris::client::DorisConnection;
use datafusion_doris::job::{JobState, SyncJob};
use datafusion_doris::options::{CatalogOptions, JobOptions, OptionKey, Secret};
use doris_sandbox::Sandbox;
use doris_sandbox::s3_endpoint::{S3Endpoint, S3Settings};

use crate::catalogs::CatalogArg;
use crate::error::{Result, ShellError};
use crate::jobs::{Abandoned, Background, Progress, State};
use crate::substitute::{Lookup, Missing};

/// How long an abandoned epoch may take to abort its load in Doris.
const ABORT_LIMIT: Duration = Duration::from_secs(10);

/// `${fenodes}` without a sandbox.
pub(crate) const FENODES_VARIABLE: &str = "DORIS_FENODES";
/// `${s3_endpoint}` without a sandbox.
const S3_ENDPOINT_VARIABLE: &str = "DORIS_S3_ENDPOINT";
/// `${jdbc_url}` and the server of `\doris`, without a sandbox and without `\connect`.
const JDBC_URL_VARIABLE: &str = "DORIS_JDBC_URL";
/// User of that server, `root` by default.
pub(crate) const USER_VARIABLE: &str = "DORIS_USERNAME";
/// Password of that server, empty by default.
pub(crate) const PASSWORD_VARIABLE: &str = "DORIS_PASSWORD";

/// One result of a statement that Doris ran.
#[derive(Debug)]
pub(crate) enum DorisResult {
    /// Rows, as the text that the MySQL protocol carries.
    Rows { columns: Vec<String>, rows: Vec<Vec<Option<String>>> },
    /// A statement without rows.
    Affected(u64),
}

/// A Doris server that `\doris` sends statements to.
#[derive(Debug, Clone)]
struct Server {
    jdbc_url: String,
    user: String,
    password: Secret,
}

/// A DataFusion context with Doris registered, and what belongs to it.
pub struct Context {
    session: SessionContext,
    fenodes: Option<String>,
    server: Option<Server>,
    /// Opened by the first statement. Gone while a statement runs: when that is cancelled, the connection is in the
    /// middle of an answer and must not be used again.
    connection: Option<DorisConnection>,
    /// Object store beside the sandbox.
    s3: Option<S3Endpoint>,
    /// Last, so that it stops after all that talks to it.
    sandbox: Option<Sandbox>,
}

impl Context {
    /// A context without a sandbox. Server and FE addresses come from the environment, if it has them.
    pub fn new() -> Self {
        let server = env::var(JDBC_URL_VARIABLE).ok().map(|jdbc_url| Server {
            jdbc_url,
            user: env::var(USER_VARIABLE).unwrap_or_else(|_| "root".to_owned()),
            password: Secret::new(env::var(PASSWORD_VARIABLE).unwrap_or_default()),
        });
        Self {
            session: datafusion_doris::session_context(),
            fenodes: env::var(FENODES_VARIABLE).ok(),
            server,
            connection: None,
            s3: None,
            sandbox: None,
        }
    }

    /// Starts a sandbox in this process and chooses it as server.
    pub(crate) async fn start_sandbox(&mut self) -> Result<()> {
        let sandbox = Sandbox::builder().start().await.map_err(|error| ShellError::Sandbox(error.to_string()))?;
        self.fenodes = Some(sandbox.fenodes());
        let server = Server { jdbc_url: sandbox.jdbc_url(), user: "root".to_owned(), password: Secret::default() };
        self.server = Some(server);
        self.connection = None;
        let s3 = S3Endpoint::start(S3Settings::default()).await;
        self.s3 = Some(s3.map_err(|error| ShellError::Sandbox(error.to_string()))?);
        self.sandbox = Some(sandbox);
        Ok(())
    }

    /// Registers a cluster as a catalog. What the argument leaves out comes from the sandbox or the environment.
    pub(crate) async fn add_catalog(&self, argument: &CatalogArg) -> Result<()> {
        let CatalogArg { name, location, options } = argument;
        let mut options = options.clone();
        let given: Vec<OptionKey> = options.keys().filter_map(|key| key.parse().ok()).collect();
        let mut add = |key: OptionKey, value: String| {
            if !given.contains(&key) {
                options.insert(key.as_ref().to_owned(), value);
            }
        };
        if location.is_empty() && !given.contains(&OptionKey::FeNodes) {
            let missing = || {
                let advice = format!("start with --sandbox, set {FENODES_VARIABLE}, or give a URL");
                ShellError::Arguments(format!("--catalog {name} has no cluster: {advice}"))
            };
            add(OptionKey::FeNodes, self.fenodes.clone().ok_or_else(missing)?);
            if let Some(server) = &self.server {
                add(OptionKey::JdbcUrl, server.jdbc_url.clone());
                add(OptionKey::Username, server.user.clone());
                add(OptionKey::Password, server.password.reveal().to_owned());
            }
        }
        add(OptionKey::Username, env::var(USER_VARIABLE).unwrap_or_else(|_| "root".to_owned()));
        if let Ok(password) = env::var(PASSWORD_VARIABLE) {
            add(OptionKey::Password, password);
        }
        let options = CatalogOptions::from_location_and_map(location, options)?;
        self.session.register_catalog(name, Arc::new(DorisCatalog::connect(options).await?));
        Ok(())
    }

    /// The DataFusion context.
    pub fn session(&self) -> &SessionContext {
        &self.session
    }

    /// The SQL dialect that the session reads statements in.
    pub(crate) fn dialect(&self) -> Box<dyn Dialect> {
        let name = self.session.state().config_options().sql_parser.dialect.to_string();
        dialect_from_str(name).unwrap_or_else(|| Box::new(GenericDialect {}))
    }

    /// Plans one statement; DDL and settings take effect.
    pub(crate) async fn sql(&self, sql: &str) -> Result<DataFrame> {
        Ok(datafusion_doris::sql(&self.session, sql).await?)
    }

    /// Starts a continuous INSERT as a job.
    pub(crate) async fn submit(&self, name: &str, sql: &str) -> Result<impl Background + use<>> {
        Ok(SyncJob::submit(&self.session, name, sql).await?)
    }

    /// Starts a continuous INSERT that is a statement by itself.
    pub(crate) async fn statement(&self, sql: &str) -> Result<impl Background + use<>> {
        Ok(SyncJob::statement(&self.session, sql).await?)
    }

    /// How long a job may take for its epoch after a signal.
    pub(crate) fn stop_timeout(&self) -> Duration {
        JobOptions::of(self.session.state().config_options()).stop_timeout
    }

    /// Names of tables and columns, for completion. Columns are those of tables that are declared here: asking Doris for the columns of a whole catalog takes too long.
    pub(crate) async fn names(&self) -> Result<BTreeSet<String>> {
        let session = &self.session;
        let mut names = BTreeSet::new();
        for catalog in session.catalog_names().iter().filter_map(|name| session.catalog(name)) {
            let remote = catalog.as_ref().is::<DorisCatalog>();
            for schema in catalog.schema_names() {
                let Some(provider) = catalog.schema(&schema) else { continue };
                let tables = provider.table_names();
                if !remote {
                    for table in &tables {
                        let Some(table) = provider.table(table).await? else { continue };
                        names.extend(table.schema().fields().iter().map(|field| field.name().clone()));
                    }
                } else if !tables.is_empty() {
                    names.insert(schema);
                }
                names.extend(tables);
            }
        }
        Ok(names)
    }

    /// Chooses the server of `\doris`, and logs in.
    pub(crate) async fn connect(&mut self, url: &str, user: &str, password: &str) -> Result<()> {
        let jdbc_url = if url.contains("://") { url.to_owned() } else { format!("jdbc:mysql://{url}") };
        let server = Server { jdbc_url, user: user.to_owned(), password: Secret::new(password) };
        self.connection = Some(open(&server).await?);
        self.server = Some(server);
        Ok(())
    }

    /// Sends a statement to Doris. The connection is kept: session variables and the current database last.
    pub(crate) async fn doris(&mut self, sql: &str) -> Result<Vec<DorisResult>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => open(self.server.as_ref().ok_or(ShellError::NotConnected)?).await?,
        };
        let answer = connection.execute(sql).await;
        // After a lost connection the next statement opens another one.
        if !matches!(answer, Err(datafusion_doris::Error::Transport { .. })) {
            self.connection = Some(connection);
        }
        let results = answer?.into_iter().map(|output| {
            if output.columns.is_empty() {
                DorisResult::Affected(output.affected)
            } else {
                DorisResult::Rows { columns: output.columns, rows: output.rows }
            }
        });
        Ok(results.collect())
    }
}

async fn open(server: &Server) -> Result<DorisConnection> {
    Ok(DorisConnection::connect(&server.jdbc_url, &server.user, &server.password).await?)
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

/// An instant in epoch milliseconds, for people.
pub(crate) fn instant(ms: i64) -> String {
    match timestamp_ms_to_datetime(ms) {
        Some(time) => format!("{} UTC", time.format("%Y-%m-%d %H:%M:%S%.3f")),
        None => format!("millisecond {ms}"),
    }
}

/// How far a changelog is mirrored, for people.
pub(crate) fn place(position: &SourcePosition) -> String {
    match position {
        SourcePosition::Snapshot { .. } => "snapshot".to_owned(),
        SourcePosition::Changelog { next_ms } => format!("changes before {}", instant(*next_ms)),
    }
}

#[async_trait]
impl Background for SyncJob {
    fn progress(&self) -> Progress {
        let status = self.status();
        let state = match status.state {
            JobState::Running => State::Running,
            JobState::Stopped => State::Stopped,
            JobState::Finished => State::Finished,
            JobState::Failed => State::Failed,
        };
        let positions: Vec<String> =
            status.positions.iter().map(|(table, position)| format!("{table}: {}", place(position))).collect();
        let position = positions.join(", ");
        Progress { state, epochs: status.epochs, rows: status.rows, position, failed_epoch: status.run.last_error }
    }

    async fn caught_up(&self) -> Result<()> {
        Ok(SyncJob::caught_up(self).await?)
    }

    async fn stop(&self) -> Result<u64> {
        Ok(SyncJob::stop(self).await?)
    }

    async fn wait(&self) -> Result<u64> {
        Ok(SyncJob::wait(self).await?)
    }

    async fn abort(&self) -> Abandoned {
        let run = SyncJob::abort(self, ABORT_LIMIT).await;
        match (run.open_labels.is_empty(), run.generation) {
            (false, _) => Abandoned::Recorded,
            (true, Some(_)) => Abandoned::ReadAgain,
            (true, None) => Abandoned::BeginsAnew,
        }
    }
}

impl Lookup for Context {
    fn lookup(&self, name: &str) -> Result<String, Missing> {
        let unset = |how: String| Missing::Unset(how);
        match name {
            "fenodes" => {
                let how = || unset(format!("start with --sandbox, or set {FENODES_VARIABLE} to host:port of an FE"));
                self.fenodes.clone().ok_or_else(how)
            }
            "jdbc_url" => {
                let how = || unset(format!("start with --sandbox, use `\\connect URL`, or set {JDBC_URL_VARIABLE}"));
                self.server.as_ref().map(|server| server.jdbc_url.clone()).ok_or_else(how)
            }
            "s3_endpoint" => {
                let how = || unset(format!("start with --sandbox, or set {S3_ENDPOINT_VARIABLE} to https://host:port"));
                let endpoint = self.s3.as_ref().map(S3Endpoint::url);
                endpoint.or_else(|| env::var(S3_ENDPOINT_VARIABLE).ok()).ok_or_else(how)
            }
            _ => {
                let variable = name.strip_prefix("env:").ok_or(Missing::Unknown)?;
                env::var(variable).map_err(|error| match error {
                    VarError::NotPresent => unset(format!("environment variable {variable} is not set")),
                    VarError::NotUnicode(_) => unset(format!("environment variable {variable} is not valid UTF-8")),
                })
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let context = Context::new();
        let why = context.lookup("env:DATAFUSION_DORIS_NO_SUCH_VARIABLE").unwrap_err();
        let text = "environment variable DATAFUSION_DORIS_NO_SUCH_VARIABLE is not set";
        assert_eq!(why, Missing::Unset(text.to_owned()));
        assert_eq!(context.lookup("Fenodes"), Err(Missing::Unknown));
    }

    #[test]
    fn the_dialect_follows_the_session() {
        let context = Context::new();
        assert!(!context.dialect().supports_string_literal_backslash_escape());
        let state = context.session().state_ref();
        state.write().config_mut().options_mut().sql_parser.dialect = "mysql".parse().unwrap();
        assert!(context.dialect().supports_string_literal_backslash_escape());
    }
}
