//! The sandbox server.
fn main() {}
