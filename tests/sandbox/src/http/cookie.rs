//! The cookie `PALO_SESSION_ID`: a login by Basic opens a session, and later calls may show its cookie instead.

use std::collections::BTreeMap;

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;

use crate::random;

const NAME: &str = "PALO_SESSION_ID";
/// Life of a session.
const LIFE_S: i64 = 24 * 3600;
/// Sessions kept; the one that ends first goes first.
const KEPT: usize = 1000;

#[derive(Debug)]
struct WebSession {
    user: String,
    ends_ms: i64,
}

/// The sessions of one FE.
#[derive(Debug, Default)]
pub(crate) struct WebSessions(Mutex<BTreeMap<String, WebSession>>);

impl WebSessions {
    /// Opens a session; the value of `Set-Cookie`.
    fn open(&self, user: &str, now_ms: i64) -> String {
        let id = random::uuid();
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| session.ends_ms > now_ms);
        if sessions.len() >= KEPT
            && let Some(first) = sessions.iter().min_by_key(|(_, s)| s.ends_ms).map(|(id, _)| id.clone())
        {
            sessions.remove(&first);
        }
        sessions.insert(id.clone(), WebSession { user: user.to_owned(), ends_ms: now_ms + LIFE_S * 1000 });
        format!("{NAME}={id}; Max-Age={LIFE_S}; Path=/; HttpOnly")
    }

    /// The user whose session the request shows.
    pub fn user(&self, headers: &HeaderMap, now_ms: i64) -> Option<String> {
        let shown = headers.get_all(COOKIE).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(';'));
        let ids = shown.filter_map(|pair| pair.trim().split_once('=')).filter(|(name, _)| *name == NAME);
        let sessions = self.0.lock();
        ids.filter_map(|(_, id)| sessions.get(id)).find(|s| s.ends_ms > now_ms).map(|s| s.user.clone())
    }

    /// Opens a session and puts its cookie into the answer's headers.
    pub fn set(&self, headers: &mut HeaderMap, user: &str, now_ms: i64) {
        if let Ok(value) = HeaderValue::from_str(&self.open(user, now_ms)) {
            headers.append(SET_COOKIE, value);
        }
    }

    /// Ends all.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn request(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(cookie).expect("cookie"))])
    }

    #[test]
    fn a_cookie_is_good_for_a_day() {
        let sessions = WebSessions::default();
        let mut answer = HeaderMap::new();
        sessions.set(&mut answer, "root", 0);
        let set = answer[SET_COOKIE].to_str().expect("text").to_owned();
        assert!(set.ends_with("; Max-Age=86400; Path=/; HttpOnly"), "{set}");
        let pair = set.split(';').next().expect("pair");
        assert_eq!(sessions.user(&request(&format!("a=b; {pair}")), 86_399_999).as_deref(), Some("root"));
        assert_eq!(sessions.user(&request(pair), 86_400_000), None);
        assert_eq!(sessions.user(&request("PALO_SESSION_ID=other"), 0), None);
        sessions.clear();
        assert_eq!(sessions.user(&request(pair), 0), None);
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let sessions = WebSessions::default();
        for now in 0..=KEPT as i64 {
            sessions.open("root", now);
        }
        assert_eq!(sessions.0.lock().len(), KEPT);
    }
}
