//! Writing to Doris by Stream Load.

mod encoder;
