//! A SQL shell for Apache Doris.
fn main() {}
