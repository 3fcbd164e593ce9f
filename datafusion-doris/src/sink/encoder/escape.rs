//! Texts in which some bytes cannot stand as they are.

/// Bytes looked at in one go: the loop over them becomes a few wide instructions.
const PIECE: usize = 32;

/// True for what JSON escapes, in ASCII: quotes, backslashes and control characters.
pub(super) fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// True when [`is_special`] holds for any of `bytes`.
pub(super) fn any_special(bytes: &[u8]) -> bool {
    bytes.chunks(PIECE).any(|piece| any(piece, is_special))
}

/// Appends `text`; for each byte for which `special` holds, what `escape` appends instead.
pub(super) fn push_escaped(
    out: &mut Vec<u8>,
    text: &[u8],
    special: impl Fn(u8) -> bool + Copy,
    escape: impl Fn(&mut Vec<u8>, u8),
) {
    let mut copied = 0;
    for start in (0..text.len()).step_by(PIECE) {
        let piece = &text[start..text.len().min(start + PIECE)];
        if !any(piece, special) {
            continue;
        }
        for (at, &byte) in (start..).zip(piece) {
            if special(byte) {
                out.extend_from_slice(&text[copied..at]);
                escape(out, byte);
                copied = at + 1;
            }
        }
    }
    out.extend_from_slice(&text[copied..]);
}

/// Looks at all bytes, since a loop that ends early looks at one at a time.
fn any(piece: &[u8], special: impl Fn(u8) -> bool) -> bool {
    piece.iter().fold(0, |found, byte| found | u8::from(special(*byte))) != 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_special_byte_is_escaped_and_all_others_stay(text in "[a-c\"\n]{0,100}") {
            let mut out = Vec::new();
            push_escaped(&mut out, text.as_bytes(), is_special, |out, byte| out.extend_from_slice(&[b'\\', byte]));
            let expected = text.replace('"', "\\\"").replace('\n', "\\\n");
            prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
            prop_assert_eq!(any_special(text.as_bytes()), text.contains(['"', '\n']));
        }
    }
}
