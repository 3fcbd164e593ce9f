//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use doris_sandbox::cli::SandboxArgs;

use crate::admin::JobsArgs;
use crate::catalogs::CatalogArg;
use crate::render::Format;

/// A SQL shell for Apache Doris on Apache DataFusion.
///
/// Without -c and -f: a prompt on a terminal, otherwise standard input is run as a script.
#[derive(Debug, Parser)]
#[command(
    name = "datafusion-doris-cli",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Exit codes: 0 success, 1 a statement, assertion or job failed, 2 wrong arguments, 130 Ctrl-C, 143 \
                  SIGTERM.\n\nEnvironment: DORIS_FENODES and DORIS_JDBC_URL give ${fenodes} and ${jdbc_url} without \
                  --sandbox; DORIS_USERNAME\nand DORIS_PASSWORD log in to the server of \\doris, to catalogs, and to the server of jobs; \
                  DATAFUSION_DORIS_HISTORY names the history file (empty: none).\n\nStatements and backslash \
                  commands: see \\help in the shell."
)]
pub struct Args {
    /// Start an embedded Doris sandbox; its addresses are ${fenodes} and ${jdbc_url} in SQL text
    #[arg(long)]
    pub sandbox: bool,

    /// Show a Doris cluster as a catalog, so that NAME.database.table needs no DDL; may be repeated. URL is
    /// doris://fe:8030/database?option=value&…, database and options may be left out; without a URL: the sandbox, or the
    /// cluster of DORIS_FENODES
    #[arg(long = "catalog", value_name = "NAME[=URL]")]
    pub catalogs: Vec<CatalogArg>,

    /// Run SQL and exit; may be repeated, runs in the order given and stops at the first error
    #[arg(short = 'c', long = "command", value_name = "SQL", conflicts_with = "file")]
    pub commands: Vec<String>,

    /// Run a script and exit; `-` reads standard input. Not together with -c
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// How results are printed
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,

    /// Print results only: no row counts, times or job notes on standard error
    #[arg(short = 'q', long)]
    pub quiet: bool,

    /// Something else than the shell
    #[command(subcommand)]
    pub mode: Option<Mode>,
}

/// What the program can do beside being a shell.
#[derive(Debug, Subcommand)]
pub enum Mode {
    /// Run a Doris sandbox until SIGINT or SIGTERM; prints one JSON line with its addresses when ready
    Sandbox(SandboxArgs),
    /// Show, reset or drop the continuous INSERTs whose checkpoints are in a directory
    Jobs(JobsArgs),
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn commands_keep_their_order_and_exclude_a_file() {
        let args = Args::try_parse_from(["cli", "-c", "SELECT 1", "-q", "-c", "SELECT 2"]).unwrap();
        assert_eq!(args.commands, ["SELECT 1", "SELECT 2"]);
        assert!(args.quiet);
        assert!(Args::try_parse_from(["cli", "-c", "SELECT 1", "-f", "x.sql"]).is_err());
        assert_eq!(Args::try_parse_from(["cli", "-f", "-"]).unwrap().file, Some(PathBuf::from("-")));
    }

    #[test]
    fn formats_are_spelt_in_lower_case() {
        let format = |name| Args::try_parse_from(["cli", "--format", name]).map(|args| args.format);
        assert_eq!(format("ndjson").unwrap(), Format::Ndjson);
        assert!(format("yaml").is_err());
    }
}
