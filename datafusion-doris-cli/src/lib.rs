//! The shell as a library.
