//! Tablets have one replica each: what is on a backend that is down can be neither read nor written.

use crate::engine::{Engine, TabletInfo};
use crate::error::{LoadError, SqlError};

/// Id of the first backend; the others follow.
const FIRST_BACKEND_ID: usize = 10_001;

/// The first of these tablets that is on a backend that is down, and the backend's id.
fn unreachable(engine: &Engine, tablets: &[TabletInfo]) -> Option<(u64, usize)> {
    let backends = engine.topology().backends;
    tablets.iter().find_map(|tablet| {
        let number = tablet.backend.checked_rem(backends.len())?;
        (!backends[number].alive).then_some((tablet.id, FIRST_BACKEND_ID + number))
    })
}

/// Whether these tablets can be read.
///
/// # Errors
/// One is on a backend that is down.
pub(crate) fn check_queryable(engine: &Engine, tablets: &[TabletInfo]) -> Result<(), SqlError> {
    match unreachable(engine, tablets) {
        None => Ok(()),
        Some((tablet, backend)) => Err(SqlError::detail(format!(
            "tablet {tablet} has no queryable replicas. err: replica {}'s backend {backend} does not exist or not alive",
            tablet + 1
        ))),
    }
}

/// Whether these tablets can be written.
///
/// # Errors
/// One is on a backend that is down.
pub(crate) fn check_loadable(engine: &Engine, tablets: &[TabletInfo]) -> Result<(), LoadError> {
    match unreachable(engine, tablets) {
        None => Ok(()),
        Some((tablet, _)) => Err(LoadError::frontend(format!(
            "tablet {tablet} alive replica num 0 < load required replica num 1, alive backends: []"
        ))),
    }
}
