//! `mysql_native_password`: the client sends `SHA1(password) XOR SHA1(salt + SHA1(SHA1(password)))`.

use sha1::{Digest, Sha1};

/// Whether `auth` is the answer to `salt` of someone who knows the password behind `hash`, its SHA1 applied twice; the
/// trailing NUL of a salt is ignored.
pub(crate) fn verify(hash: &[u8; 20], salt: &[u8], auth: &[u8]) -> bool {
    let salt = if salt.len() == 21 { &salt[..20] } else { salt };
    let mut hasher = Sha1::new();
    hasher.update(salt);
    hasher.update(hash);
    let mask = hasher.finalize();
    if auth.len() != mask.len() {
        return false;
    }
    let first: Vec<u8> = auth.iter().zip(mask.iter()).map(|(a, b)| a ^ b).collect();
    Sha1::digest(first).as_slice() == hash
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn right_answer_is_accepted_and_wrong_ones_are_not() {
        let salt = *b"01234567890123456789";
        let first = Sha1::digest(b"secret");
        let hash: [u8; 20] = Sha1::digest(first).into();
        let mut hasher = Sha1::new();
        hasher.update(salt);
        hasher.update(hash);
        let mask = hasher.finalize();
        let auth: Vec<u8> = first.iter().zip(mask.iter()).map(|(a, b)| a ^ b).collect();
        assert!(verify(&hash, &salt, &auth));
        assert!(!verify(&Sha1::digest(Sha1::digest(b"other")).into(), &salt, &auth));
        assert!(!verify(&hash, &salt, &[]));
    }
}
