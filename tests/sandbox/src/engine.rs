//! The engine: everything behind the protocols. Servers hold an `Arc<Engine>` and open a [`Session`] per connection.

mod loads;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use parking_lot::{Mutex, RwLock};

pub use crate::changelog::IncrFailure;
use crate::changelog::{IncrFailures, Streams, Tso};
pub use crate::clock::{Clock, ManualClock, SystemClock};
use crate::connections::ConnectionPool;
use crate::error::SqlError;
use crate::flight::FlightConfig;
use crate::load::ErrorLogs;
use crate::processes::Processes;
pub use crate::profile::Profile;
use crate::queries::{ActiveQueries, ActiveQuery};
use crate::session::Session;
use crate::sql::Globals;
use crate::storage::{Catalog, Column, KeysType, SequenceSpec, Table};
pub use crate::txn::{
    LabelState, LoadOutcome, LoadSpec, MergeType, NewKeyBehavior, Overwrite, RefusedRow, TxnRef, UpdateMode,
};
use crate::txn::{Publisher, TxnManager};
use crate::types::DorisType;
pub use crate::users::Privilege;
use crate::users::Users;

/// What an engine is made from.
#[derive(Clone)]
pub struct EngineConfig {
    /// The build to imitate.
    pub profile: Profile,
    /// Name of the administrator.
    pub user: String,
    /// Password of the administrator, may be empty.
    pub password: String,
    /// Time source of transactions and TSO.
    pub clock: Arc<dyn Clock>,
    /// `stream_load_default_precommit_timeout_second`: age at which a pre-committed transaction is aborted.
    pub precommit_timeout: Duration,
    /// `max_running_txn_num_per_db`.
    pub max_running_txn_num_per_db: usize,
    /// `max_publishing_txn_num_per_table`; `None`: no limit.
    pub max_publishing_txn_num_per_table: Option<usize>,
    /// `label_keep_max_second`: how long a finished transaction keeps its label.
    pub label_keep_max: Duration,
    /// `streaming_label_keep_max_second`: the same for Stream Load and INSERT.
    pub streaming_label_keep_max: Duration,
    /// `max_tablet_version_num`: versions of a tablet above which loads are refused.
    pub max_tablet_version_num: usize,
    /// `string_type_length_soft_limit_bytes`: longest STRING that is stored.
    pub string_limit_bytes: u32,
    /// Small rowsets are merged after a commit.
    pub auto_compaction: bool,
    /// Time zone of new sessions, an IANA name or an offset.
    pub time_zone: String,
    /// External catalogs, to be read: the database `d` of catalog `c` is the internal database `c__d`.
    pub external_catalogs: Vec<String>,
    /// Limits of Arrow Flight SQL and of connections.
    pub flight: FlightConfig,
    /// `enable_feature_binlog`: tables may record row changes.
    pub enable_feature_binlog: bool,
    /// `enable_table_stream`: table streams may be made and read.
    pub enable_table_stream: bool,
    /// Threads that run queries; `None`: the caller's own.
    pub executor: Option<tokio::runtime::Handle>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            user: "root".to_owned(),
            password: String::new(),
            clock: Arc::new(SystemClock),
            precommit_timeout: Duration::from_secs(3600),
            max_running_txn_num_per_db: 10_000,
            max_publishing_txn_num_per_table: Some(500),
            label_keep_max: Duration::from_secs(259_200),
            streaming_label_keep_max: Duration::from_secs(43_200),
            max_tablet_version_num: 2000,
            string_limit_bytes: 1_048_576,
            auto_compaction: true,
            time_zone: "Asia/Shanghai".to_owned(),
            external_catalogs: Vec::new(),
            flight: FlightConfig::default(),
            enable_feature_binlog: true,
            enable_table_stream: true,
            executor: None,
        }
    }
}

impl fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineConfig")
            .field("profile", &self.profile)
            .field("user", &self.user)
            .field("precommit_timeout", &self.precommit_timeout)
            .finish_non_exhaustive()
    }
}

/// Id of the cluster.
pub const CLUSTER_ID: i32 = 1;

/// One FE or BE as SHOW FRONTENDS / SHOW BACKENDS print it. Ports not served are 0 (printed as -1 for Flight).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Host without port.
    pub host: String,
    /// HTTP port.
    pub http_port: u16,
    /// MySQL port (FE only).
    pub query_port: u16,
    /// Arrow Flight SQL port.
    pub flight_port: u16,
    /// Its HTTP speaks TLS alone.
    pub tls: bool,
    /// Whether heartbeats arrive.
    pub alive: bool,
    /// When it started, milliseconds since the Unix epoch.
    pub started_ms: i64,
}

/// The nodes of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// Frontends.
    pub frontends: Vec<Node>,
    /// Backends.
    pub backends: Vec<Node>,
    /// Number of the master among the frontends.
    pub master: usize,
}

/// Who opened a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// MySQL wire protocol.
    Mysql,
    /// `/api/query/...`.
    Http,
    /// Arrow Flight SQL.
    Flight,
}

/// Which side of the cluster produces a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// SHOW, SET, constants: held by the FE, all columns text over Flight.
    Fe,
    /// A query over tables: read from the BE.
    Be,
}

/// The outcome of one statement.
pub enum StatementResult {
    /// Rows to stream.
    Rows {
        /// Arrow schema as the profile sends it over Flight.
        schema: SchemaRef,
        /// The batches, each with exactly `schema`.
        stream: SendableRecordBatchStream,
        /// FE or BE.
        origin: Origin,
        /// Doris type of each column, for MySQL column types and text rendering.
        types: Vec<DorisType>,
    },
    /// No result set.
    Done {
        /// Affected rows.
        affected: u64,
        /// Info text of the OK packet (`{'label':'..', 'status':'visible', 'txnId':'..'}` for INSERT), may be empty.
        info: String,
        /// Rows that were filtered.
        warnings: u64,
    },
}

impl fmt::Debug for StatementResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows { schema, origin, .. } => {
                f.debug_struct("Rows").field("schema", schema).field("origin", origin).finish()
            }
            Self::Done { affected, info, warnings } => {
                let mut done = f.debug_struct("Done");
                done.field("affected", affected).field("info", info).field("warnings", warnings).finish()
            }
        }
    }
}

/// Facts of one table, a copy taken at one moment.
#[derive(Debug, Clone)]
pub struct TableMeta {
    /// Database.
    pub database: String,
    /// Table.
    pub name: String,
    /// Table id.
    pub id: u64,
    /// Base columns in order, without hidden ones.
    pub columns: Vec<Column>,
    /// Key model.
    pub keys_type: KeysType,
    /// Unique with merge-on-write: partial updates are possible.
    pub merge_on_write: bool,
    /// Sequence column of a unique table.
    pub sequence: Option<SequenceSpec>,
    /// Partition columns, empty without partitioning.
    pub partition_columns: Vec<String>,
    /// Properties as SHOW CREATE TABLE prints them.
    pub properties: BTreeMap<String, String>,
    /// Distribution columns, empty for RANDOM.
    pub hash_columns: Vec<String>,
    /// Number of buckets per partition.
    pub buckets: usize,
    /// Comment of the table.
    pub comment: String,
}

impl TableMeta {
    /// Arrow schema (storage types) of batches for [`Engine::write_load`] with these target columns, in this order;
    /// `None` means all base columns. Unique tables may list `__DORIS_DELETE_SIGN__`, `__DORIS_SKIP_BITMAP_COL__` (flexible
    /// partial update) and, with a sequence column, `__DORIS_SEQUENCE_COL__`.
    ///
    /// # Errors
    /// 1054 for a column the table does not have, 1105 for one listed twice.
    pub fn load_schema(&self, columns: Option<&[String]>) -> Result<SchemaRef, SqlError> {
        crate::storage::load_schema(&self.columns, self.keys_type, self.sequence.as_ref().map(|s| &s.ty), columns)
    }

    /// The column of this name, compared without case.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.name.eq_ignore_ascii_case(name))
    }
}

/// One tablet, for query plans and SHOW TABLETS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TabletInfo {
    /// Tablet id.
    pub id: u64,
    /// Name of its partition.
    pub partition: String,
    /// Visible version.
    pub version: u64,
    /// Rows that are alive.
    pub rows: u64,
    /// Index of the backend in [`Topology::backends`] (modulo its length).
    pub backend: usize,
}

/// Current TSO as `/api/tso` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TsoStatus {
    /// The whole TSO: `physical << 18 | logical`.
    pub current_tso: i64,
    /// Physical part, milliseconds since the Unix epoch.
    pub physical_ms: i64,
    /// Logical part.
    pub logical: i64,
    /// End of the allocated window, milliseconds.
    pub window_end_ms: i64,
    /// TSO up to which no commit is on its way any more; `None` in builds that do not tell it.
    pub committed_tso: Option<i64>,
    /// The service has a window to allocate from.
    pub calibrated: bool,
    /// A new master does not know yet whether commits of the old one are on their way.
    pub recovering: bool,
}

/// The in-process Doris cluster behind all protocols.
pub struct Engine {
    config: EngineConfig,
    topology: RwLock<Topology>,
    pub(crate) users: Users,
    /// Values of SET GLOBAL.
    pub(crate) globals: RwLock<Globals>,
    pub(crate) processes: Arc<Processes>,
    pub(crate) catalog: Catalog,
    pub(crate) txns: TxnManager,
    pub(crate) publisher: Publisher,
    pub(crate) tso: Tso,
    pub(crate) incr_failures: IncrFailures,
    pub(crate) streams: Streams,
    /// Serialises commits: a TSO is allocated and its rows become visible under it.
    pub(crate) commit_lock: Mutex<()>,
    connection_ids: AtomicU64,
    pub(crate) connections: ConnectionPool,
    /// Connections of Arrow Flight SQL, in builds that count them apart.
    pub(crate) flight_connections: ConnectionPool,
    pub(crate) queries: ActiveQueries,
    /// Rows that INSERTs filtered: they run on all BEs, and any of these tells.
    pub(crate) insert_logs: ErrorLogs,
    /// What ANALYZE gathered, by table: a row for each column, its name first.
    column_statistics: Mutex<HashMap<u64, Vec<Vec<Option<String>>>>>,
    pub(crate) started_ms: i64,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Engine {
    /// Keeps what was gathered of some columns of a table, in place of what was known of them.
    pub(crate) fn keep_column_statistics(&self, table: u64, rows: Vec<Vec<Option<String>>>) {
        let mut all = self.column_statistics.lock();
        let known = all.entry(table).or_default();
        known.retain(|row| !rows.iter().any(|new| new.first() == row.first()));
        known.extend(rows);
    }

    /// What was gathered of the columns of a table.
    pub(crate) fn column_statistics(&self, table: u64) -> Vec<Vec<Option<String>>> {
        self.column_statistics.lock().get(&table).cloned().unwrap_or_default()
    }

    /// An empty cluster.
    pub fn new(config: EngineConfig) -> Arc<Engine> {
        let started_ms = config.clock.now_ms();
        Arc::new(Engine {
            topology: RwLock::default(),
            users: Users::new(&config.user, &config.password),
            globals: RwLock::default(),
            processes: Arc::default(),
            catalog: Catalog::default(),
            txns: TxnManager::new(&config),
            publisher: Publisher::default(),
            tso: Tso::new(Arc::clone(&config.clock), config.profile),
            incr_failures: IncrFailures::default(),
            streams: Streams::default(),
            commit_lock: Mutex::new(()),
            connection_ids: AtomicU64::new(1),
            connections: ConnectionPool::default(),
            flight_connections: ConnectionPool::default(),
            queries: ActiveQueries::default(),
            insert_logs: ErrorLogs::default(),
            column_statistics: Mutex::default(),
            started_ms,
            config,
        })
    }

    /// The configuration the engine was made from.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The build this engine imitates.
    pub fn profile(&self) -> Profile {
        self.config.profile
    }

    /// Tells the engine where its servers listen; called once the ports are bound.
    pub fn set_topology(&self, topology: Topology) {
        *self.topology.write() = topology;
    }

    /// The nodes as last told.
    pub fn topology(&self) -> Topology {
        self.topology.read().clone()
    }

    /// Number of the master among the frontends.
    pub(crate) fn master(&self) -> usize {
        self.topology.read().master
    }

    /// Adds a user, or replaces the password of one.
    pub fn set_user(&self, user: &str, password: &str) {
        self.users.set(user, password);
    }

    /// Whether user and password are right.
    pub fn authenticate(&self, user: &str, password: &str) -> bool {
        self.users.authenticate(user, None, password)
    }

    /// Whether user and password are right for a client at this address.
    pub fn authenticate_from(&self, user: &str, address: &str, password: &str) -> bool {
        self.users.authenticate(user, Some(address), password)
    }

    /// Whether `auth` answers `salt` rightly under `mysql_native_password` (an empty answer means no password).
    pub fn mysql_password_ok(&self, user: &str, address: &str, salt: &[u8], auth: &[u8]) -> bool {
        self.users.answers(user, Some(address), salt, auth)
    }

    /// Whether the user has the ADMIN privilege.
    pub fn is_admin(&self, user: &str) -> bool {
        self.users.allows(user, "", "", Privilege::Admin)
    }

    /// Checks a privilege on a table; an empty name means the whole database, or the cluster.
    ///
    /// # Errors
    /// 1227 with the text of REST answers.
    pub fn check_privilege(&self, user: &str, db: &str, table: &str, privilege: Privilege) -> Result<(), SqlError> {
        match self.users.allows(user, db, table, privilege) {
            true => Ok(()),
            false => Err(crate::users::denied(privilege.word())),
        }
    }

    /// Opens a session: one per connection (MySQL), token (Flight) or request (HTTP).
    pub fn open_session(self: &Arc<Self>, user: &str, client_ip: &str, protocol: Protocol) -> Session {
        self.open_session_as(self.next_connection(), user, client_ip, protocol)
    }

    /// The number of a new connection, as KILL takes it.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connection_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// [`Self::open_session`] of a connection that has its number already.
    pub(crate) fn open_session_as(
        self: &Arc<Self>,
        id: u64,
        user: &str,
        client_ip: &str,
        protocol: Protocol,
    ) -> Session {
        Session::new(Arc::clone(self), id, user, client_ip, protocol)
    }

    /// Facts of a table.
    ///
    /// # Errors
    /// 1049 for the database, 1105 for the table.
    pub fn table_meta(&self, db: &str, table: &str) -> Result<TableMeta, SqlError> {
        Ok(self.catalog.table(db, table)?.meta(db))
    }

    /// Tablets of a table in id order.
    ///
    /// # Errors
    /// As [`Engine::table_meta`].
    pub fn tablets(&self, db: &str, table: &str) -> Result<Vec<TabletInfo>, SqlError> {
        Ok(self.catalog.table(db, table)?.tablets())
    }

    /// Tablets that a statement of `_query_plan` reads; the statement must be a plain scan of `db`.`table`.
    ///
    /// # Errors
    /// The texts of `TableQueryPlanAction` for anything but one table with projection and filter.
    pub async fn plan_tablets(self: &Arc<Self>, db: &str, table: &str, sql: &str) -> Result<Vec<TabletInfo>, SqlError> {
        self.table_meta(db, table)?;
        crate::sql::plan_tablets(self, db, table, sql).await
    }

    /// Names of the databases, system ones included, sorted.
    pub fn databases(&self) -> Vec<String> {
        self.catalog.database_names()
    }

    /// Current TSO as clients are told; reading does not allocate one.
    pub fn tso(&self) -> TsoStatus {
        self.tso.shown()
    }

    /// The oracle behind it: step it back, restart it as a new master does, take its calibration away.
    pub fn tso_service(&self) -> &Tso {
        &self.tso
    }

    /// Makes the next fence of an incremental read fail so; several wait in line.
    pub fn fail_incr(&self, failure: IncrFailure) {
        self.incr_failures.push(failure);
    }

    /// Cleans up the change records of a table from before a moment, in milliseconds since the epoch, as its TTL would.
    ///
    /// # Errors
    /// As [`Engine::table_meta`].
    pub fn expire_changes(&self, db: &str, table: &str, before_ms: i64) -> Result<(), SqlError> {
        self.catalog.table(db, table)?.expire(before_ms.saturating_mul(1 << crate::changelog::LOGICAL_BITS));
        Ok(())
    }

    /// Queries that run or whose results wait to be read, oldest first.
    pub fn active_queries(&self) -> Vec<ActiveQuery> {
        self.queries.list()
    }

    /// Number of transactions in PREPARE or PRECOMMITTED, over all databases.
    pub fn running_transactions(&self) -> usize {
        self.txns.running_total()
    }

    /// Tells of every transaction that begins or ends from now on.
    pub(crate) fn transaction_changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.txns.changes()
    }

    /// Aborts what is past its time. The engine also does this on every access; servers call it about once a second.
    pub fn sweep(&self) {
        self.txns.expire(self.config.clock.now_ms());
        let now = self.tso.status();
        for db in self.catalog.database_names() {
            for table in self.catalog.tables(&db).unwrap_or_default() {
                table.expire(crate::changelog::retained_from(&table, &now));
            }
        }
    }

    pub(crate) fn table_handle(&self, db: &str, table: &str) -> Result<Arc<Table>, SqlError> {
        self.catalog.table(db, table)
    }
}
