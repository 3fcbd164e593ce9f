//! Identifiers that cannot be guessed from outside the process.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

/// 32 bytes from the keys the operating system seeds hash maps with, a counter and the time.
pub(crate) fn bytes() -> [u8; 32] {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut hash = Sha256::new();
    for _ in 0..4 {
        hash.update(RandomState::new().hash_one(COUNTER.fetch_add(1, Ordering::Relaxed)).to_le_bytes());
    }
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    hash.update(nanos.to_le_bytes());
    hash.finalize().into()
}

/// A bearer token as Doris prints it: 26 characters of `[0-9a-v]`.
pub(crate) fn token() -> String {
    bytes().iter().take(26).map(|b| char::from_digit(u32::from(b % 32), 32).unwrap_or('0')).collect()
}

/// Two hexadecimal halves, as Doris prints query and fragment ids.
pub(crate) fn query_id() -> String {
    let b = bytes();
    let half = |part: &[u8]| part.iter().fold(0_u64, |acc, b| acc << 8 | u64::from(*b));
    format!("{:x}-{:x}", half(&b[..8]), half(&b[8..16]))
}

/// A UUID text, as a BE makes for a load without label.
pub(crate) fn uuid() -> String {
    let hex: String = bytes()[..16].iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_their_forms_and_differ() {
        let t = token();
        assert_eq!(t.len(), 26);
        assert!(t.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'v').contains(&b)), "{t}");
        assert_ne!(t, token());
        assert_eq!(uuid().len(), 36);
        assert_eq!(query_id().split('-').count(), 2);
    }
}
