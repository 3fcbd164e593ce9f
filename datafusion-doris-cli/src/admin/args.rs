//! The command line of `jobs`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use crate::render::Format;

/// Arguments of `jobs`. They may stand before and after the command.
#[derive(Debug, Args)]
pub struct JobsArgs {
    /// Where the checkpoints are, as in `SET doris.checkpoint.dir`: a directory, or s3://bucket/prefix
    #[arg(long, global = true, value_name = "DIR")]
    pub dir: Option<String>,

    /// FEs of the server that the jobs write to, to see and settle open loads; default: DORIS_FENODES
    #[arg(long, global = true, value_name = "HOST:HTTP_PORT")]
    pub fenodes: Option<String>,

    /// User there; default: DORIS_USERNAME, else root
    #[arg(long, global = true, value_name = "USER")]
    pub username: Option<String>,

    /// File that holds the password; default: DORIS_PASSWORD
    #[arg(long, global = true, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// How results are printed
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,

    /// Print results only
    #[arg(short = 'q', long, global = true)]
    pub quiet: bool,

    /// What to do
    #[command(subcommand)]
    pub command: JobsCommand,
}

/// What `jobs` can do.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// List the jobs below the directory
    List,
    /// Show a job: its positions and their lag, its last epochs, open loads, savepoints, and what it is
    Show {
        /// Name of the job
        name: String,
    },
    /// Give a job other positions; a process of it that runs is fenced, and the next start goes on from there
    #[command(group(ArgGroup::new("target").required(true).args(["to_savepoint", "to_timestamp"])))]
    Reset {
        /// Name of the job
        name: String,
        /// The positions of this savepoint
        #[arg(long, value_name = "SAVEPOINT")]
        to_savepoint: Option<String>,
        /// All changes since, `yyyy-MM-dd HH:mm:ss` in the server's time zone
        #[arg(long, value_name = "TIME")]
        to_timestamp: Option<String>,
        /// Time zone of --to-timestamp when no server is named, `Area/City` or `+08:00`
        #[arg(long, value_name = "ZONE", requires = "to_timestamp")]
        time_zone: Option<String>,
    },
    /// End a job for good: fence it, commit what it has recorded, abort what it has not, remove its checkpoints
    Drop {
        /// Name of the job
        name: String,
        /// Also without a server, or when its checkpoint is not understood; what stays open is named
        #[arg(long)]
        force: bool,
        /// Keep its savepoints
        #[arg(long)]
        keep_savepoints: bool,
    },
}
