//! A SQL shell for Apache Doris on Apache DataFusion.

use std::process::ExitCode;

use clap::Parser;
use datafusion_doris_cli::args::Args;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    ExitCode::from(datafusion_doris_cli::process(args))
}
