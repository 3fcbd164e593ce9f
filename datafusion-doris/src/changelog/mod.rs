//! Changelog reads.

pub mod window;
