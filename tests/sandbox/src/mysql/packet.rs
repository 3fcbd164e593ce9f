//! MySQL packets: framing, and the primitive encodings inside.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Payload bytes after which a packet continues in the next one.
const MAX_PAYLOAD: usize = 0xff_ffff;
/// Largest command accepted (`max_allowed_packet`).
const MAX_COMMAND: usize = 256 * 1024 * 1024;
/// Bytes that may wait before they are written out.
const FLUSH_BYTES: usize = 128 * 1024;

/// Reads and writes packets of one connection.
pub(super) struct Packets<S> {
    stream: S,
    sequence: u8,
    pending: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Packets<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, sequence: 0, pending: Vec::new() }
    }

    /// Gives the stream to `change` and goes on with what comes back; the sequence of packets goes on too.
    pub async fn replace<F: Future<Output = io::Result<S>>>(self, change: impl FnOnce(S) -> F) -> io::Result<Self> {
        Ok(Self { stream: change(self.stream).await?, sequence: self.sequence, pending: self.pending })
    }

    /// What carries the packets.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The next command starts a new sequence.
    pub fn reset_sequence(&mut self) {
        self.sequence = 0;
    }

    /// Reads one payload; `None` when the client has closed.
    pub async fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut payload = Vec::new();
        loop {
            let mut header = [0; 4];
            match self.stream.read_exact(&mut header).await {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && payload.is_empty() => return Ok(None),
                other => other?,
            };
            let length = usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16;
            self.sequence = header[3].wrapping_add(1);
            let start = payload.len();
            if start + length > MAX_COMMAND {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "command larger than max_allowed_packet"));
            }
            payload.resize(start + length, 0);
            self.stream.read_exact(&mut payload[start..]).await?;
            if length < MAX_PAYLOAD {
                return Ok(Some(payload));
            }
        }
    }

    /// Queues one payload.
    pub async fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut rest = payload;
        loop {
            let (part, left) = rest.split_at(rest.len().min(MAX_PAYLOAD));
            let length = (part.len() as u32).to_le_bytes();
            self.pending.extend_from_slice(&[length[0], length[1], length[2], self.sequence]);
            self.pending.extend_from_slice(part);
            self.sequence = self.sequence.wrapping_add(1);
            rest = left;
            // A payload of exactly the maximum is followed by an empty packet.
            if part.len() < MAX_PAYLOAD {
                break;
            }
        }
        if self.pending.len() >= FLUSH_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Sends all that is queued.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.pending).await?;
        self.pending.clear();
        self.stream.flush().await
    }
}

/// Appends a length-encoded integer.
pub(super) fn put_length(out: &mut Vec<u8>, n: u64) {
    let bytes = n.to_le_bytes();
    match n {
        0..=0xfa => out.push(bytes[0]),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&bytes[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Appends a length-encoded text.
pub(super) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_length(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Takes values off the front of a payload. A payload that is too short gives `None`.
pub(super) struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|b| b[0])
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.bytes(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Bytes up to a NUL, or all that is left.
    pub fn until_nul(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(self.0.len());
        let text = &self.0[..end];
        self.0 = self.0.get(end + 1..).unwrap_or_default();
        text
    }

    pub fn length(&mut self) -> Option<u64> {
        let wide = match self.u8()? {
            n @ 0..=0xfa => return Some(u64::from(n)),
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            _ => return None,
        };
        let mut bytes = [0; 8];
        bytes[..wide].copy_from_slice(self.bytes(wide)?);
        Some(u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn lengths_round_trip() {
        for n in [0, 0xfa, 0xfb, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000, u64::MAX] {
            let mut out = Vec::new();
            put_length(&mut out, n);
            assert_eq!(Take(&out).length(), Some(n));
        }
        assert_eq!(Take(&[0xfc, 1]).length(), None);
    }

    #[tokio::test]
    async fn a_payload_of_the_maximum_length_is_continued() {
        let (client, server) = tokio::io::duplex(1 << 16);
        let payload = vec![7; MAX_PAYLOAD];
        let sent = payload.clone();
        let writer = async move {
            let mut packets = Packets::new(client);
            packets.write(&sent).await.expect("write");
            packets.flush().await.expect("flush");
        };
        let mut packets = Packets::new(server);
        let (read, ()) = tokio::join!(packets.read(), writer);
        assert_eq!(read.expect("read").expect("payload").len(), payload.len());
        assert_eq!(packets.sequence, 2);
    }
}
