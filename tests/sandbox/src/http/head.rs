//! The head of a request as it came over the wire.
//!
//! hyper drops `Content-Length` when `Transfer-Encoding` is there too, but a BE must refuse a load that has both. So
//! the connection keeps a copy of each head, and the handler puts the header back.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::Request;
use http::HeaderValue;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Longest head kept.
const MAX_HEAD: usize = 64 * 1024;

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
    /// Puts a dropped `Content-Length` back.
    pub fn restore(&self, request: &mut Request) {
        if !request.headers().contains_key(TRANSFER_ENCODING) || request.headers().contains_key(CONTENT_LENGTH) {
            return;
        }
        let line = format!("{} {} ", request.method(), request.uri());
        if let Some(value) = self.0.lock().content_length(&line) {
            request.headers_mut().insert(CONTENT_LENGTH, value);
        }
    }

    /// The request is answered; the next bytes are a head again.
    pub fn next_request(&self) {
        *self.0.lock() = Head::default();
    }
}

/// A connection that keeps a copy of the heads it reads.
pub(super) struct Copying {
    stream: TcpStream,
    head: HeadCopy,
}

impl Copying {
    pub fn new(stream: TcpStream, head: HeadCopy) -> Self {
        Self { stream, head }
    }

    pub fn into_inner(self) -> TcpStream {
        self.stream
    }
}

impl AsyncRead for Copying {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.head.0.lock().push(&buf.filled()[before..]);
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
