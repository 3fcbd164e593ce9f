//! Basic authentication as FE and BE read it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// User and password of a request.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User without cluster part.
    pub user: String,
    /// Password, may hold colons.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads `Authorization`. `None` when it is missing or malformed.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        headers.get(AUTHORIZATION)?.to_str().ok().and_then(Self::from_header_value)
    }

    /// Reads `<scheme> <base64>`; the scheme word is not looked at, and the first colon separates.
    pub fn from_header_value(value: &str) -> Option<Self> {
        let (_scheme, encoded) = value.trim().split_once(' ')?;
        let encoded = encoded.trim();
        // Some Flight drivers leave the padding out.
        let bytes = STANDARD.decode(encoded).or_else(|_| STANDARD_NO_PAD.decode(encoded)).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (user, password) = text.split_once(':')?;
        let user = user.split_once('@').map_or(user, |(name, _cluster)| name);
        (!user.is_empty()).then(|| Self { user: user.to_owned(), password: password.to_owned() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn parse(plain: &str) -> Option<Credentials> {
        Credentials::from_header_value(&format!("Whatever {}", STANDARD.encode(plain)))
    }

    #[test]
    fn the_first_colon_separates_and_the_scheme_does_not_matter() {
        let c = parse("root:a:b").expect("credentials");
        assert_eq!((c.user.as_str(), c.password.as_str()), ("root", "a:b"));
    }

    #[test]
    fn the_cluster_part_of_a_user_is_dropped() {
        assert_eq!(parse("u@cluster:p").expect("credentials").user, "u");
    }

    #[test]
    fn unpadded_base64_is_read() {
        let c = Credentials::from_header_value(&format!("Basic {}", STANDARD_NO_PAD.encode("root:x")));
        assert_eq!(c.expect("credentials").password, "x");
    }

    #[test]
    fn malformed_values_are_no_credentials() {
        for value in ["", "Basic", "Basic !!!", "Basic cm9vdA==", "Basic OnB3"] {
            assert_eq!(Credentials::from_header_value(value), None, "{value}");
        }
    }

    #[test]
    fn debug_hides_the_password() {
        let c = Credentials { user: "root".into(), password: "hunter2".into() };
        assert!(!format!("{c:?}").contains("hunter2"));
    }
}
