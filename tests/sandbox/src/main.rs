//! `doris-sandbox`: a Doris-compatible server in one process.

use std::process::ExitCode;

use clap::Parser;
use doris_sandbox::cli::{self, CliError, SandboxArgs};
use tracing_subscriber::EnvFilter;

/// A Doris-compatible server in one process: FE and BE HTTP, MySQL protocol, Arrow Flight SQL.
#[derive(Debug, Parser)]
#[command(name = "doris-sandbox")]
struct Cli {
    #[command(flatten)]
    sandbox: SandboxArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn")))
        .with_writer(std::io::stderr)
        .init();
    let run = || cli::runtime().map_err(CliError::from)?.block_on(cli.sandbox.run());
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
