//! Bearer tokens: issued at login, kept as the build keeps them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tonic::Status;

use super::config::Governance;
use super::sessions::FlightSession;
use crate::connections::Limits;
use crate::engine::{Engine, Profile, Protocol};
use crate::random;

/// Characters of a token that messages may show.
const SHOWN: usize = 4;

/// The tokens of one FE.
#[derive(Debug, Default)]
pub(crate) struct FlightSessions {
    /// Number of the FE.
    frontend: usize,
    tokens: Mutex<Tokens>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Tokens {
    by_token: BTreeMap<String, Token>,
    /// Counts uses, to find the token that was not used for longest.
    uses: u64,
}

#[derive(Debug)]
struct Token {
    user: String,
    address: String,
    issued_ms: i64,
    used: u64,
    /// The connection; builds with a cache make it at the first command.
    session: Option<Arc<FlightSession>>,
    /// It had a connection once.
    spent: bool,
}

/// A number that names a token in messages without giving it away.
fn masked(token: &str) -> String {
    let shown: String = token.chars().take(SHOWN).collect();
    format!("{shown}***")
}

impl Tokens {
    fn touch(&mut self, token: &str) {
        self.uses += 1;
        let uses = self.uses;
        if let Some(token) = self.by_token.get_mut(token) {
            token.used = uses;
        }
    }

    /// Forgets a token with its connection.
    fn remove(&mut self, token: &str) -> bool {
        match self.by_token.remove(token) {
            Some(gone) => {
                if let Some(session) = gone.session {
                    session.end();
                }
                true
            }
            None => false,
        }
    }

    /// Forgets the tokens used longest ago until no more than `kept` of those `of` selects are left.
    fn evict(&mut self, kept: usize, of: impl Fn(&Token) -> bool) {
        loop {
            let selected = self.by_token.iter().filter(|(_, t)| of(t));
            let count = selected.clone().count();
            let oldest = selected.min_by_key(|(_, t)| t.used).map(|(token, _)| token.clone());
            match oldest {
                Some(oldest) if count > kept => self.remove(&oldest),
                _ => return,
            };
        }
    }

    /// Ends what is past its time.
    fn expire(&mut self, governance: Governance, now_ms: i64, life_ms: i64) -> bool {
        let mut gone = Vec::new();
        let mut changed = false;
        for (name, token) in &mut self.by_token {
            if token.session.as_ref().is_some_and(|s| s.is_killed() || s.is_idle(now_ms)) {
                if let Some(session) = token.session.take() {
                    session.end();
                }
                changed = true;
                if governance == Governance::OnePool {
                    gone.push(name.clone());
                    continue;
                }
            }
            if governance != Governance::OnePool && now_ms - token.issued_ms >= life_ms {
                gone.push(name.clone());
            }
        }
        for name in &gone {
            self.remove(name);
        }
        changed || !gone.is_empty()
    }
}

fn limits(engine: &Engine, user: &str) -> Limits {
    let config = &engine.config().flight;
    Limits {
        total: config.qe_max_connection,
        user: connections_of(engine, user),
        flight: config.flight_connections(engine.profile()),
    }
}

/// `max_user_connections` of a user.
fn connections_of(engine: &Engine, user: &str) -> usize {
    engine.users.max_connections(user).unwrap_or(engine.config().flight.max_user_connections)
}

impl FlightSessions {
    /// The tokens of this FE.
    pub fn of(frontend: usize) -> Self {
        Self { frontend, ..Self::default() }
    }

    fn tell(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    /// Issues a token to a user whose password was right.
    ///
    /// # Errors
    /// The newest build opens the connection here and refuses it when the pool is full.
    pub fn login(&self, engine: &Arc<Engine>, user: &str, address: &str) -> Result<String, Status> {
        self.sweep(engine);
        let governance = Governance::of(engine.profile());
        let name = random::token();
        let mut token = Token {
            user: user.to_owned(),
            address: address.to_owned(),
            issued_ms: engine.config().clock.now_ms(),
            used: 0,
            session: None,
            spent: false,
        };
        if governance == Governance::OnePool {
            let slot = engine
                .connections
                .admit(user, true, limits(engine, user))
                .map_err(|limit| Status::resource_exhausted(limit.to_string()))?;
            let mut context = engine.open_session(user, address, Protocol::Flight);
            context.set_frontend(self.frontend);
            token.session = Some(Arc::new(FlightSession::new(&name, context, slot)));
        }
        let mut tokens = self.tokens.lock();
        tokens.by_token.insert(name.clone(), token);
        tokens.touch(&name);
        if governance != Governance::OnePool {
            let config = &engine.config().flight;
            tokens.evict(connections_of(engine, user) / 2, |t| t.user == user);
            tokens.evict(config.cache_size(engine.profile()), |_| true);
        }
        drop(tokens);
        self.tell();
        Ok(name)
    }

    /// Checks a token that a call brings.
    ///
    /// # Errors
    /// UNAUTHENTICATED for one that is not known, or too old.
    pub fn validate(&self, engine: &Arc<Engine>, token: &str) -> Result<(), Status> {
        let (profile, config) = (engine.profile(), &engine.config().flight);
        let governance = Governance::of(profile);
        let life = config.token_life(profile);
        let expired = {
            let tokens = self.tokens.lock();
            let age = |t: &Token| engine.config().clock.now_ms() - t.issued_ms;
            tokens.by_token.get(token).map(|t| i128::from(age(t)) >= life.as_millis() as i128)
        };
        self.sweep(engine);
        // Most builds with a cache keep the reason for their log.
        let told =
            |text: String| Status::unauthenticated(if profile == Profile::V5_0Binlog { text } else { String::new() });
        if governance != Governance::OnePool && expired == Some(true) {
            return Err(told(format!(
                "bearer token expired: {token}, try reconnect, currently in fe.conf, `arrow_flight_token_alive_time`={}",
                life.as_secs() / 60
            )));
        }
        let mut tokens = self.tokens.lock();
        if !tokens.by_token.contains_key(token) {
            return Err(match governance {
                Governance::OnePool => Status::unauthenticated(format!(
                    "invalid bearer token, token id: {}: no Arrow Flight SQL session is open under it on this frontend. The \
                     session may have been closed (CloseSession), killed (KILL CONNECTION) or ended by wait_timeout, may \
                     have been opened on another frontend, or this frontend may have restarted since; reconnect to open a \
                     new session. Search fe.log for the token id to see how the session ended",
                    masked(token)
                )),
                _ => told(format!(
                    "invalid bearer token: {token}, try reconnect, bearer token may not be created, or may have been evict, \
                     search for this token in fe.log to see the evict reason. currently in fe.conf, \
                     `arrow_flight_token_cache_size`={}, `arrow_flight_token_alive_time`={}",
                    config.cache_size(profile),
                    life.as_secs() / 60
                )),
            });
        }
        tokens.touch(token);
        Ok(())
    }

    /// The connection of a token, made now where the build makes it at the first command.
    ///
    /// # Errors
    /// UNAUTHENTICATED as [`Self::validate`]; INTERNAL when the token had its connection already, or the pool is full.
    pub fn session(&self, engine: &Arc<Engine>, name: &str) -> Result<Arc<FlightSession>, Status> {
        self.validate(engine, name)?;
        let mut tokens = self.tokens.lock();
        let Some(token) = tokens.by_token.get_mut(name) else {
            return Err(Status::unauthenticated(""));
        };
        if let Some(session) = &token.session {
            return Ok(Arc::clone(session));
        }
        if token.spent {
            tokens.remove(name);
            drop(tokens);
            self.tell();
            return Err(Status::internal(format!(
                "IllegalArgumentException: UserSession expire after access, try reconnect, bearer token id: {}, a \
                 peerIdentity(bearer token) can only create a ConnectContext once. if ConnectContext is deleted without \
                 operation for a long time, it needs to be reconnected (at the same time obtain a new bearer token).",
                masked(name)
            )));
        }
        token.spent = true;
        let (user, address) = (token.user.clone(), token.address.clone());
        let slot = match Governance::of(engine.profile()) {
            Governance::SeparatePool => {
                let max = limits(engine, &user).flight;
                let own = Limits { total: max, user: usize::MAX, flight: usize::MAX };
                engine.flight_connections.admit(&user, true, own).map_err(|limit| {
                    Status::internal(format!(
                        "IllegalArgumentException: Register arrow flight sql connection failed, Unknown Error, the number of \
                         arrow flight bearer tokens should be equal to arrow flight sql max connections, max connections: \
                         {max}, used: {}.",
                        limit.current()
                    ))
                })?
            }
            Governance::TokenCache | Governance::OnePool => engine
                .connections
                .admit(&user, true, limits(engine, &user))
                .map_err(|_| Status::internal("IllegalArgumentException: Reach limit of connections"))?,
        };
        let mut context = engine.open_session(&user, &address, Protocol::Flight);
        context.set_frontend(self.frontend);
        let session = Arc::new(FlightSession::new(name, context, slot));
        token.session = Some(Arc::clone(&session));
        drop(tokens);
        self.tell();
        Ok(session)
    }

    /// Whether a token is known.
    pub fn contains(&self, token: &str) -> bool {
        self.tokens.lock().by_token.contains_key(token)
    }

    /// Ends a token and its connection.
    pub fn close(&self, token: &str) {
        if self.tokens.lock().remove(token) {
            self.tell();
        }
    }

    /// Ends all tokens.
    pub fn close_all(&self) {
        let all = std::mem::take(&mut self.tokens.lock().by_token);
        for session in all.into_values().filter_map(|t| t.session) {
            session.end();
        }
        self.tell();
    }

    /// Ends connections that were idle too long and tokens that are too old.
    pub fn sweep(&self, engine: &Engine) {
        let profile = engine.profile();
        let life = i64::try_from(engine.config().flight.token_life(profile).as_millis()).unwrap_or(i64::MAX);
        let now_ms = engine.config().clock.now_ms();
        if self.tokens.lock().expire(Governance::of(profile), now_ms, life) {
            self.tell();
        }
    }

    /// Tells of every token and connection that begins or ends from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Users of the open tokens.
    pub fn users(&self) -> Vec<String> {
        self.tokens.lock().by_token.values().map(|t| t.user.clone()).collect()
    }

    /// Ids of the open connections.
    pub fn connections(&self) -> Vec<u64> {
        self.tokens.lock().by_token.values().filter_map(|t| t.session.as_ref().map(|s| s.id)).collect()
    }
}
