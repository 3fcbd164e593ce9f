//! Labels: the identity of a load, the same whenever the same work is done again.

use sha2::{Digest, Sha256};

/// Longest label Doris takes by default (`label_regex_length`).
pub const MAX_LABEL_LENGTH: usize = 128;

/// Hex digits of the hash in a label.
const HASH_DIGITS: usize = 16;

/// `^[-_A-Za-z0-9:]{1,128}$`
pub fn is_valid_label(label: &str) -> bool {
    (1..=MAX_LABEL_LENGTH).contains(&label.len()) && label.bytes().all(is_label_byte)
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':')
}

/// What a label is made of: job, table and prefix, but never a task or partition number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelIdentity<'a> {
    /// `sink.label-prefix`.
    pub prefix: &'a str,
    /// Database.
    pub database: &'a str,
    /// Table.
    pub table: &'a str,
    /// Identity of the job: its name, or whatever makes this statement unlike any other.
    pub job: &'a str,
}

impl LabelIdentity<'_> {
    /// `{prefix}_{db}_{table}_{hash}_{generation}_{epoch}_{writer}`.
    ///
    /// The hash covers prefix, database, table and job, so labels of different identities differ even where the
    /// readable part is cut to fit or loses characters that labels cannot have.
    pub fn label(&self, generation: u64, epoch: u64, writer: u32) -> String {
        let tail = format!("_{}_{generation}_{epoch}_{writer}", self.hash());
        let mut head: String = format!("{}_{}_{}", self.prefix, self.database, self.table)
            .chars()
            .map(|c| if c.is_ascii() && is_label_byte(c as u8) { c } else { '_' })
            .collect();
        // All bytes are ASCII now.
        head.truncate(MAX_LABEL_LENGTH.saturating_sub(tail.len()));
        head + &tail
    }

    fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        for part in [self.prefix, self.database, self.table, self.job] {
            // The length keeps `a` + `bc` apart from `ab` + `c`.
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        let digest = hasher.finalize();
        digest.iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
    }
}
