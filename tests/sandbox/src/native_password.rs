//! `mysql_native_password`: the client sends `SHA1(password) XOR SHA1(salt + SHA1(SHA1(password)))`.

use sha1::{Digest, Sha1};

/// Whether `auth` is the answer of someone who knows `password` to `salt`; the trailing NUL of a salt is ignored.
pub(crate) fn verify(password: &str, salt: &[u8], auth: &[u8]) -> bool {
    if password.is_empty() {
        return auth.is_empty();
    }
    let salt = if salt.len() == 21 { &salt[..20] } else { salt };
    let first = Sha1::digest(password.as_bytes());
    let second = Sha1::digest(first);
    let mut hasher = Sha1::new();
    hasher.update(salt);
    hasher.update(second);
    let mask = hasher.finalize();
    let expected: Vec<u8> = first.iter().zip(mask.iter()).map(|(a, b)| a ^ b).collect();
    expected == auth
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn right_answer_is_accepted_and_wrong_ones_are_not() {
        let salt = *b"01234567890123456789";
        let first = Sha1::digest(b"secret");
        let mut hasher = Sha1::new();
        hasher.update(salt);
        hasher.update(Sha1::digest(first));
        let mask = hasher.finalize();
        let auth: Vec<u8> = first.iter().zip(mask.iter()).map(|(a, b)| a ^ b).collect();
        assert!(verify("secret", &salt, &auth));
        assert!(!verify("other", &salt, &auth));
        assert!(!verify("secret", &salt, &[]));
        assert!(verify("", &salt, &[]));
        assert!(!verify("", &salt, &auth));
    }
}
