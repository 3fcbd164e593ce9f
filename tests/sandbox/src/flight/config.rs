//! Limits and switches of Arrow Flight SQL.

use std::time::Duration;

use crate::engine::Profile;
use crate::types::old_wire::OldForms;

/// Settings of FE and BE that decide over Arrow Flight SQL, named as `fe.conf` and `be.conf` name them. Where a value is
/// not given, the build that is imitated decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlightConfig {
    /// `arrow_flight_token_cache_size`: tokens of all users; the newest build does not read it.
    pub token_cache_size: Option<usize>,
    /// `arrow_flight_token_alive_time`: age at which a token ends; the newest build does not read it.
    pub token_alive_time: Option<Duration>,
    /// `arrow_flight_max_connections`: connections of their own, or in the newest build the share of the common pool.
    pub max_connections: Option<usize>,
    /// `qe_max_connection`: connections of all protocols together.
    pub qe_max_connection: usize,
    /// `max_user_connections`: connections of one user.
    pub max_user_connections: usize,
    /// `arrow_flight_result_sink_buffer_size_rows`: most rows of a batch.
    pub result_sink_buffer_size_rows: usize,
    /// Instances that produce a result under `enable_parallel_result_sink`, each with an endpoint of its own.
    pub parallel_endpoints: usize,
    /// `public_host` of the BEs: the host that locations name instead of the BE's own.
    pub public_host: Option<String>,
    /// `public_access_port` of the BEs: the port that goes with it.
    pub public_port: Option<u16>,
    /// `arrow_flight_sql_port` is -1 on FE and BE, as in older builds by default: nobody listens there.
    pub switched_off: bool,
    /// The fault of builds before 2.1.9: a query that fails while it is read ends as an empty result.
    pub failing_query_is_empty: bool,
    /// The FE answers a query itself when it knows the rows without reading any: constants, results that are empty by their
    /// condition or limit, aggregates without GROUP BY. Every column of such an answer is text.
    pub answers_in_fe: bool,
    /// Types that travel as builds before those imitated sent them.
    pub old_forms: OldForms,
}

impl Default for FlightConfig {
    fn default() -> Self {
        Self {
            token_cache_size: None,
            token_alive_time: None,
            max_connections: None,
            qe_max_connection: 1024,
            max_user_connections: 100,
            result_sink_buffer_size_rows: 32_768,
            parallel_endpoints: 3,
            public_host: None,
            public_port: None,
            switched_off: false,
            failing_query_is_empty: false,
            answers_in_fe: false,
            old_forms: OldForms::default(),
        }
    }
}

/// How a build governs tokens and connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Governance {
    /// A cache of tokens; their connections count in the common pool.
    TokenCache,
    /// A cache of tokens whose connections have a pool of their own.
    SeparatePool,
    /// One token is one connection of the common pool.
    OnePool,
}

impl Governance {
    /// The way of a build.
    pub fn of(profile: Profile) -> Self {
        match profile {
            Profile::V2_1 => Self::TokenCache,
            Profile::V3_1 | Profile::V4_0 | Profile::V5_0Binlog => Self::SeparatePool,
            Profile::V5_0Changelog => Self::OnePool,
        }
    }
}

impl FlightConfig {
    /// Tokens that a build with a cache keeps.
    pub(crate) fn cache_size(&self, profile: Profile) -> usize {
        self.token_cache_size.unwrap_or(match Governance::of(profile) {
            Governance::TokenCache => 512,
            Governance::SeparatePool | Governance::OnePool => self.flight_connections(profile),
        })
    }

    /// Life of a token in a build with a cache.
    pub(crate) fn token_life(&self, profile: Profile) -> Duration {
        self.token_alive_time.unwrap_or(match Governance::of(profile) {
            Governance::TokenCache => Duration::from_secs(4320 * 60),
            Governance::SeparatePool | Governance::OnePool => Duration::from_secs(86_400),
        })
    }

    /// Flight connections at the same time. Half of the common pool in the newest build: its sources tell both half and
    /// all, and half is the stricter one.
    pub(crate) fn flight_connections(&self, profile: Profile) -> usize {
        self.max_connections.unwrap_or(match Governance::of(profile) {
            Governance::TokenCache => self.qe_max_connection,
            Governance::SeparatePool => 4096,
            Governance::OnePool => self.qe_max_connection / 2,
        })
    }
}

/// Flight settings on a command line.
#[derive(Debug, Clone, clap::Args)]
pub struct FlightArgs {
    /// `arrow_flight_token_cache_size`; default: as the build has it.
    #[arg(long)]
    pub arrow_flight_token_cache_size: Option<usize>,
    /// `arrow_flight_token_alive_time` in seconds; default: as the build has it.
    #[arg(long)]
    pub arrow_flight_token_alive_time_second: Option<u64>,
    /// `arrow_flight_max_connections`; default: as the build has it.
    #[arg(long)]
    pub arrow_flight_max_connections: Option<usize>,
    /// Connections of all protocols together.
    #[arg(long, default_value_t = 1024)]
    pub qe_max_connection: usize,
    /// Connections of one user.
    #[arg(long, default_value_t = 100)]
    pub max_user_connections: usize,
    /// Most rows of a Flight batch.
    #[arg(long, default_value_t = 32_768)]
    pub arrow_flight_result_sink_buffer_size_rows: usize,
    /// Host that the Flight locations of the BEs name instead of their own.
    #[arg(long)]
    pub be_public_host: Option<String>,
    /// Port that goes with it.
    #[arg(long, requires = "be_public_host")]
    pub be_public_access_port: Option<u16>,
}

impl FlightArgs {
    /// The settings these arguments stand for.
    pub fn config(&self) -> FlightConfig {
        FlightConfig {
            token_cache_size: self.arrow_flight_token_cache_size,
            token_alive_time: self.arrow_flight_token_alive_time_second.map(Duration::from_secs),
            max_connections: self.arrow_flight_max_connections,
            qe_max_connection: self.qe_max_connection,
            max_user_connections: self.max_user_connections,
            result_sink_buffer_size_rows: self.arrow_flight_result_sink_buffer_size_rows.max(1),
            public_host: self.be_public_host.clone(),
            public_port: self.be_public_access_port,
            ..FlightConfig::default()
        }
    }
}
