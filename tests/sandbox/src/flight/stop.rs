//! A connection that breaks when its server stops, or when a fault cuts it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// Polls for reading that pass between a cut and the break: what was sent before it is written out meanwhile.
const ROUNDS: u8 = 2;

pub(super) struct Stoppable {
    stream: TcpStream,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    cut: CancellationToken,
    is_cut: Pin<Box<WaitForCancellationFutureOwned>>,
    rounds: u8,
}

/// What a call can know of, and do to, its connection.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// Address of the client.
    pub peer: Option<SocketAddr>,
    /// Breaks the connection.
    pub cut: CancellationToken,
}

impl Stoppable {
    pub fn new(stream: TcpStream, stop: CancellationToken) -> Self {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set nodelay");
        }
        let cut = CancellationToken::new();
        let is_cut = Box::pin(cut.clone().cancelled_owned());
        Self { stream, stopped: Box::pin(stop.cancelled_owned()), cut, is_cut, rounds: ROUNDS }
    }

    /// Whether a fault cut the connection; a round later each time, so that what was sent is written out.
    fn check_cut(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        std::task::ready!(self.is_cut.as_mut().poll(cx));
        if self.rounds > 0 {
            self.rounds -= 1;
            self.is_cut = Box::pin(self.cut.clone().cancelled_owned());
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(io::Error::new(io::ErrorKind::ConnectionAborted, "connection cut by a fault"))
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.stopped.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server stopped")),
            Poll::Pending => Ok(()),
        }
    }
}

impl Connected for Stoppable {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        Connection { peer: self.stream.peer_addr().ok(), cut: self.cut.clone() }
    }
}

impl AsyncRead for Stoppable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        if let Poll::Ready(error) = self.check_cut(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stoppable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
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
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
