//! The settings that expressions depend on.

use super::expression::ExprContext;
use super::rewrite::Facts;
use crate::engine::{Engine, Profile};
use crate::session::Session;
use crate::types::{SessionZone, format_datetime};

/// Settings of a statement that change what expressions mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Env {
    /// `time_zone`
    pub(crate) zone: SessionZone,
    /// `enable_strict_cast`: a cast that fails is an error.
    pub(crate) strict_cast: bool,
    /// `enable_decimal256`: decimals may have 76 digits.
    pub(crate) decimal256: bool,
    /// The build.
    pub(crate) profile: Profile,
    /// Milliseconds since the epoch.
    pub(crate) now_ms: i64,
}

impl Env {
    /// Those of a session, now.
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            zone: session.variables.zone(),
            strict_cast: session.variables.is_true("enable_strict_cast"),
            decimal256: session.variables.is_true("enable_decimal256"),
            profile: session.engine.profile(),
            now_ms: session.engine.config().clock.now_ms(),
        }
    }

    /// The wall clock in the zone with six digits of fraction.
    pub(crate) fn now_text(&self) -> String {
        let wall = self.now_ms + self.zone.offset_at(self.now_ms.div_euclid(1000)) * 1000;
        format_datetime(wall * 1000, 6)
    }

    /// As [`Env::now_text`], in UTC.
    pub(crate) fn utc_text(&self) -> String {
        format_datetime(self.now_ms * 1000, 6)
    }

    /// Most digits of a decimal.
    pub(crate) fn max_precision(&self) -> u8 {
        if self.decimal256 { 76 } else { 38 }
    }
}

impl ExprContext {
    /// That of a session.
    pub(crate) fn of_session(session: &Session) -> Self {
        let env = Env::of(session);
        let facts = Facts {
            database: session.database.clone(),
            user: session.user.clone(),
            connection_id: session.id,
            version: session.variables.get("version").unwrap_or_default().to_owned(),
            now: env.now_text(),
            like_escape: env.profile > Profile::V2_1,
            decimal256: env.decimal256,
            epoch_seconds: env.now_ms.div_euclid(1000),
            utc_now: env.utc_text(),
        };
        Self { env, facts, backslash_escapes: session.variables.backslash_escapes() }
    }

    /// That of a load into a database, with the zone of its `timezone` header.
    pub(crate) fn of_load(engine: &Engine, database: &str, user: &str, zone: SessionZone) -> Self {
        let env = Env {
            zone,
            strict_cast: false,
            decimal256: true,
            profile: engine.profile(),
            now_ms: engine.config().clock.now_ms(),
        };
        let facts = Facts {
            database: Some(database.to_owned()),
            user: user.to_owned(),
            connection_id: 0,
            version: "5.7.99".to_owned(),
            now: env.now_text(),
            like_escape: env.profile > Profile::V2_1,
            decimal256: env.decimal256,
            epoch_seconds: env.now_ms.div_euclid(1000),
            utc_now: env.utc_text(),
        };
        Self { env, facts, backslash_escapes: true }
    }
}
