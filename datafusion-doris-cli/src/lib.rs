//! The shell of `datafusion-doris` as a library: SQL on DataFusion with Doris tables, statements for Doris itself, and
//! background jobs, from files, from arguments or at a prompt.
//!
//! ```text
//! text ──▶ split ──▶ substitute ──▶ exec / command ──▶ render ──▶ output
//! ```
//!
//! [`run`] is the whole program without its process: arguments, output streams and signals come in, an exit code comes
//! out.

pub mod admin;
pub mod args;
pub mod catalogs;
pub mod command;
mod complete;
pub mod context;
pub mod error;
mod exec;
pub mod interrupt;
mod jobs;
mod lex;
pub mod output;
mod process;
pub mod render;
mod repl;
mod run;
pub mod shell;
pub mod split;
pub mod substitute;

pub use process::process;
pub use run::run;
