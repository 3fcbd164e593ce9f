//! A SQL shell for Apache Doris on Apache DataFusion.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use datafusion_doris_cli::args::Args;
use datafusion_doris_cli::interrupt::Interrupts;
use datafusion_doris_cli::output::Output;
use tracing_subscriber::EnvFilter;

/// Longest wait for blocking calls that are still open at the end, such as a read of standard input.
const SHUTDOWN: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let interrupts = match Interrupts::of_process() {
        Ok(interrupts) => interrupts,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (output, _writer) = Output::stdio();
    let code = runtime.block_on(datafusion_doris_cli::run(args, output, interrupts));
    runtime.shutdown_timeout(SHUTDOWN);
    ExitCode::from(code)
}
