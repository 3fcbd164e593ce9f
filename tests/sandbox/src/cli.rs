//! The command line of a sandbox, for its own binary and for programs that embed it.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;

use crate::engine::Profile;
use crate::flight::FlightArgs;
use crate::sandbox::{Sandbox, StartError};

/// Arguments of a sandbox.
#[derive(Debug, Clone, clap::Args)]
pub struct SandboxArgs {
    /// Host to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Host that redirects and Flight endpoints name; default: the host listened on.
    #[arg(long)]
    pub public_host: Option<String>,
    /// HTTP port of the FE, 0 for any free one.
    #[arg(long, default_value_t = 0)]
    pub http_port: u16,
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
    /// The sandbox did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Standard output or signal handling failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl SandboxArgs {
    /// Starts a sandbox with these arguments.
    ///
    /// # Errors
    /// The seed cannot be read or fails, or a port is taken.
    pub async fn start(&self) -> Result<Sandbox, CliError> {
        let mut builder = Sandbox::builder()
            .host(&self.host)
            .http_port(self.http_port)
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
        Ok(builder.start().await?)
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

/// All addresses as one JSON object; the password stays out.
fn ready_line(sandbox: &Sandbox, user: &str) -> String {
    let a = sandbox.addresses();
    json!({
        "fenodes": sandbox.fenodes(),
        "benodes": sandbox.benodes(),
        "jdbc_url": sandbox.jdbc_url(),
        "fe_http": a.fe_http.to_string(),
        "be_http": a.be_http.to_string(),
        "mysql": a.mysql.to_string(),
        "fe_flight": a.fe_flight.to_string(),
        "be_flight": a.be_flight.to_string(),
        "user": user,
    })
    .to_string()
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
