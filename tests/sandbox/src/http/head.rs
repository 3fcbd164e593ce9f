//! The head of a request as it came over the wire.
//!
//! hyper drops `Content-Length` when `Transfer-Encoding` is there too, but a BE must refuse a load that has both. So
//! the connection keeps a copy of each head, and the handler puts the header back. A length that is no number would end
//! in a bare 400, where a BE answers with its JSON: on the way to hyper such a header gets another name.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::Request;
use http::HeaderValue;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::Connection;

/// Longest head kept.
const MAX_HEAD: usize = 64 * 1024;

/// What hyper reads instead of `content-length` when its value is no number.
const MASKED: &str = "xontent-length";

/// Place of the first byte of a `Content-Length` whose value is no number.
fn wrong_length(head: &[u8]) -> Option<usize> {
    let name = CONTENT_LENGTH.as_str().as_bytes();
    let mut at = 0;
    for line in head.split_inclusive(|b| *b == b'\n') {
        let text = line.trim_ascii();
        if text.is_empty() {
            return None;
        }
        let colon = text.iter().position(|b| *b == b':');
        if let Some((key, value)) = colon.map(|colon| (&text[..colon], text[colon + 1..].trim_ascii()))
            && key.eq_ignore_ascii_case(name)
            && line.ends_with(b"\n")
            && !value.iter().all(u8::is_ascii_digit)
        {
            return Some(at);
        }
        at += line.len();
    }
    None
}

/// The copy of the current head.
#[derive(Debug, Default)]
struct Head {
    bytes: Vec<u8>,
    complete: bool,
}

impl Head {
    fn push(&mut self, bytes: &[u8]) {
        if self.complete || self.bytes.len() > MAX_HEAD {
            return;
        }
        let from = self.bytes.len().saturating_sub(3);
        self.bytes.extend_from_slice(bytes);
        if let Some(at) = self.bytes[from..].windows(4).position(|w| w == b"\r\n\r\n") {
            self.bytes.truncate(from + at);
            self.complete = true;
        }
    }

    /// Value of `Content-Length` in the head of a request that starts like `line`.
    fn content_length(&self, line: &str) -> Option<HeaderValue> {
        let text = std::str::from_utf8(&self.bytes).ok().filter(|t| self.complete && t.starts_with(line))?;
        text.lines().skip(1).find_map(|header| {
            let (name, value) = header.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| HeaderValue::from_str(value.trim()).ok())?
        })
    }
}

/// Access to the copy, for the handlers of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct HeadCopy(Arc<Mutex<Head>>);

impl HeadCopy {
    /// Puts a dropped or renamed `Content-Length` back.
    pub fn restore(&self, request: &mut Request) {
        let headers = request.headers();
        let renamed = headers.contains_key(MASKED);
        if headers.contains_key(CONTENT_LENGTH) || !(renamed || headers.contains_key(TRANSFER_ENCODING)) {
            return;
        }
        let line = format!("{} {} ", request.method(), request.uri());
        if let Some(value) = self.0.lock().content_length(&line) {
            request.headers_mut().insert(CONTENT_LENGTH, value);
            request.headers_mut().remove(MASKED);
        }
    }

    /// The request is answered; the next bytes are a head again.
    pub fn next_request(&self) {
        *self.0.lock() = Head::default();
    }
}

/// A connection that keeps a copy of the heads it reads.
pub(super) struct Copying {
    stream: Connection,
    head: HeadCopy,
    /// Lengths that are no number reach the handler.
    any_length: bool,
}

impl Copying {
    pub fn new(stream: Connection, head: HeadCopy, any_length: bool) -> Self {
        Self { stream, head, any_length }
    }

    pub fn into_inner(self) -> Connection {
        self.stream
    }
}

impl AsyncRead for Copying {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        let mut head = self.head.0.lock();
        let in_head = !head.complete;
        head.push(&buf.filled()[before..]);
        drop(head);
        if in_head
            && self.any_length
            && let Some(at) = wrong_length(&buf.filled()[before..])
        {
            buf.filled_mut()[before + at] = MASKED.as_bytes()[0];
        }
        polled
    }
}

impl AsyncWrite for Copying {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lengths_that_are_no_number_are_renamed() {
        for (head, place) in [
            ("PUT / HTTP/1.1\r\nContent-Length: 12\r\n\r\n", None),
            ("PUT / HTTP/1.1\r\nContent-Length: abc\r\n\r\n", Some(16)),
            ("PUT / HTTP/1.1\r\nhost: x\r\ncontent-length:-1\r\n\r\n", Some(25)),
            ("PUT / HTTP/1.1\r\nhost: x\r\n\r\ncontent-length: abc\r\n", None),
            ("PUT / HTTP/1.1\r\ncontent-length: 1", None),
        ] {
            assert_eq!(wrong_length(head.as_bytes()), place, "{head}");
        }
    }
}
