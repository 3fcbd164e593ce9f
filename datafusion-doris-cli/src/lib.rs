//! The shell as a library.

pub mod args;
pub mod command;
pub mod error;
pub mod interrupt;
mod lex;
pub mod output;
pub mod render;
pub mod split;
pub mod substitute;
