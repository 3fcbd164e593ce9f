//! A Doris-compatible server in one process.
//!
//! [`Sandbox::builder`] starts FE and BE HTTP, the FE's MySQL protocol and both Arrow Flight SQL services on free
//! ports; dropping the [`Sandbox`] stops them. [`Faults`] and [`Requests`] let tests ask for faults and see what the
//! servers received. The sandbox shares no code with the client: each implements the protocols by itself.

mod changelog;
pub mod cli;
mod clock;
mod cluster;
mod connections;
mod deep_stack;
pub mod engine;
pub mod error;
mod executor;
mod faults;
mod flight;
mod http;
mod load;
mod mysql;
mod native_password;
mod net;
mod nodes;
mod processes;
mod profile;
mod queries;
mod random;
mod replicas;
pub mod s3_endpoint;
mod sandbox;
pub mod session;
mod shared;
mod sql;
mod storage;
#[cfg(test)]
mod testing;
mod tls;
mod txn;
pub mod types;
mod users;

pub use cluster::NodeState;
pub use engine::{Engine, EngineConfig, IncrFailure, Privilege, Profile};
pub use error::{LoadError, SqlError};
pub use faults::{Action, AppliedFault, Fault, Faults, FlightSchemaFault, NodeId, Requests, SeenRequest, Site};
pub use flight::{FlightArgs, FlightConfig};
pub use nodes::NodeHandle;
pub use queries::ActiveQuery;
pub use sandbox::{Outcome, Sandbox, SandboxBuilder, StartError};
pub use session::Session;
pub use shared::Addresses;
pub use storage::{Aggregation, Column, DefaultValue, KeysType};
pub use tls::{Tls, TlsError};
pub use txn::{LoadTxn, TxnState};
pub use types::old_wire::OldForms;
