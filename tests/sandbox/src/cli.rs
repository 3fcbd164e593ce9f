//! The command line of a sandbox, for its own binary and for programs that embed it.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;

use crate::engine::Profile;
use crate::faults::NodeId;
use crate::flight::FlightArgs;
use crate::nodes::NodeHandle;
use crate::sandbox::{Sandbox, StartError};
use crate::tls::Tls;

/// Arguments of a sandbox.
#[derive(Debug, Clone, clap::Args)]
pub struct SandboxArgs {
    /// Host to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Host that redirects and Flight endpoints name; default: the host listened on.
    #[arg(long)]
    pub public_host: Option<String>,
    /// Number of FEs; the first is the master. Ports given are those of the first one.
    #[arg(long, default_value_t = 1)]
    pub frontends: usize,
    /// Number of BEs. Ports given are those of the first one.
    #[arg(long, default_value_t = 1)]
    pub backends: usize,
    /// HTTP port of the FE, 0 for any free one.
    #[arg(long, default_value_t = 0)]
    pub http_port: u16,
    /// HTTP port with TLS of the FE, 0 for any free one.
    #[arg(long, default_value_t = 0)]
    pub https_port: u16,
    /// HTTP port of the BE, 0 for any free one.
    #[arg(long, default_value_t = 0)]
    pub be_http_port: u16,
    /// MySQL port of the FE, 0 for any free one.
    #[arg(long, default_value_t = 0)]
    pub mysql_port: u16,
    /// Arrow Flight SQL port of the FE, 0 for any free one.
    #[arg(long, default_value_t = 0)]
    pub flight_port: u16,
    /// Arrow Flight SQL port of the BE, 0 for any free one.
    #[arg(long, default_value_t = 0)]
    pub be_flight_port: u16,
    /// Port of the admin endpoint, 0 for any free one; without this it is not served.
    #[arg(long)]
    pub admin_port: Option<u16>,
    /// Servers that speak TLS, as a list of http, be-http, mysql, mysql-required, flight, or all.
    #[arg(long, value_name = "LIST")]
    pub tls: Option<Tls>,
    /// File to write the certificate of the TLS authority to.
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub tls_ca_out: Option<PathBuf>,
    /// Name of the administrator.
    #[arg(long, default_value = "root")]
    pub user: String,
    /// Password of the administrator.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub password: String,
    /// SQL script to run before the servers answer.
    #[arg(long, value_name = "FILE")]
    pub seed: Option<PathBuf>,
    /// Doris build to imitate: 2.1, 3.1, 4.0, 5.0-binlog or 5.0-changelog.
    #[arg(long, default_value_t = Profile::default())]
    pub profile: Profile,
    /// Limits of Arrow Flight SQL.
    #[command(flatten)]
    pub flight: FlightArgs,
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The seed script cannot be read.
    #[error("cannot read the seed script {path}: {source}")]
    ReadSeed {
        /// The file.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// The certificate of the TLS authority cannot be written.
    #[error("cannot write the certificate {path}: {source}")]
    WriteCertificate {
        /// The file.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// The sandbox did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Standard output or signal handling failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl SandboxArgs {
    #[cfg(test)]
    pub(crate) fn parse_from_list(list: &[&str]) -> Self {
        use clap::{Args, FromArgMatches};
        let command = Self::augment_args(clap::Command::new("doris-sandbox"));
        let matches = command.get_matches_from(std::iter::once(&"doris-sandbox").chain(list));
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Starts a sandbox with these arguments.
    ///
    /// # Errors
    /// The seed cannot be read or fails, a port is taken, or the certificate cannot be written.
    pub async fn start(&self) -> Result<Sandbox, CliError> {
        let mut builder = Sandbox::builder()
            .host(&self.host)
            .frontends(self.frontends)
            .backends(self.backends)
            .tls(self.tls.unwrap_or_default())
            .http_port(self.http_port)
            .https_port(self.https_port)
            .be_http_port(self.be_http_port)
            .mysql_port(self.mysql_port)
            .flight_port(self.flight_port)
            .be_flight_port(self.be_flight_port)
            .user(&self.user)
            .password(&self.password)
            .profile(self.profile)
            .flight(self.flight.config());
        if let Some(host) = &self.public_host {
            builder = builder.public_host(host);
        }
        if let Some(path) = &self.seed {
            let seed = tokio::fs::read_to_string(path)
                .await
                .map_err(|source| CliError::ReadSeed { path: path.clone(), source })?;
            builder = builder.seed_sql(seed);
        }
        if let Some(port) = self.admin_port {
            builder = builder.admin_port(port);
        }
        let sandbox = builder.start().await?;
        if let (Some(path), Some(pem)) = (&self.tls_ca_out, sandbox.ca_pem()) {
            tokio::fs::write(path, pem)
                .await
                .map_err(|source| CliError::WriteCertificate { path: path.clone(), source })?;
        }
        Ok(sandbox)
    }

    /// Runs a sandbox until SIGINT or SIGTERM: prints one JSON line with all addresses when it is ready.
    ///
    /// # Errors
    /// As [`Self::start`], or standard output is closed.
    pub async fn run(&self) -> Result<(), CliError> {
        let stopped = StopSignal::listen()?;
        let sandbox = self.start().await?;
        let mut out = io::stdout().lock();
        writeln!(out, "{}", ready_line(&sandbox, &self.user))?;
        out.flush()?;
        drop(out);
        stopped.wait().await;
        Ok(())
    }
}

/// Threads that may block at once: every load that is open has one, as many as `max_running_txn_num_per_db` lets in.
const BLOCKING_THREADS: usize = 10_000;

/// A runtime for a sandbox that many loads are sent to at once.
///
/// # Errors
/// The threads cannot be started.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build()
}

/// All addresses as one JSON object, the ones of the first nodes on the top level; the password stays out.
fn ready_line(sandbox: &Sandbox, user: &str) -> String {
    let a = sandbox.addresses();
    let mut line = json!({
        "fenodes": sandbox.fenodes(),
        "benodes": sandbox.benodes(),
        "jdbc_url": sandbox.jdbc_url(),
        "fe_http": a.fe_http.to_string(),
        "be_http": a.be_http.to_string(),
        "mysql": a.mysql.to_string(),
        "fe_flight": a.fe_flight.to_string(),
        "be_flight": a.be_flight.to_string(),
        "user": user,
        "nodes": sandbox.handles().iter().map(node).collect::<Vec<_>>(),
    });
    if let Some(https) = a.fe_https {
        line["fe_https"] = https.to_string().into();
    }
    if let Some(admin) = sandbox.admin_address() {
        line["admin"] = admin.to_string().into();
    }
    line.to_string()
}

fn node(node: &NodeHandle) -> serde_json::Value {
    let a = node.addresses();
    match node.id() {
        NodeId::Fe(_) => json!({
            "node": node.id().to_string(),
            "http": a.fe_http.to_string(),
            "https": a.fe_https.map(|https| https.to_string()),
            "mysql": a.mysql.to_string(),
            "flight": a.fe_flight.to_string(),
        }),
        NodeId::Be(_) => json!({
            "node": node.id().to_string(),
            "http": a.be_http.to_string(),
            "flight": a.be_flight.to_string(),
        }),
    }
}

/// The signals that stop a sandbox, listened to before it starts.
#[cfg(unix)]
struct StopSignal {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl StopSignal {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn wait(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct StopSignal;

#[cfg(not(unix))]
impl StopSignal {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn wait(self) {
        // Without a handler the process ends on its own.
        let _ = tokio::signal::ctrl_c().await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::sync::{Arc, Barrier};

    #[test]
    fn more_loads_can_be_open_than_a_runtime_has_threads_by_default() {
        let runtime = super::runtime().expect("runtime");
        let barrier = Arc::new(Barrier::new(520));
        let open: Vec<_> = (0..520)
            .map(|_| {
                let barrier = Arc::clone(&barrier);
                runtime.spawn_blocking(move || barrier.wait())
            })
            .collect();
        for load in open {
            runtime.block_on(load).expect("load");
        }
    }
}
