//! Ports and connections of a node that can be stopped and paused.
//!
//! A port stays bound while its node is stopped, so that nobody else gets it and clients are refused. Every connection
//! breaks when its node stops or when a fault cuts it; while the node is paused it moves no bytes.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a client may take to agree on TLS.
const TLS_TIME: Duration = Duration::from_secs(10);
/// TLS handshakes of a Flight server that run at once.
const TLS_AT_ONCE: usize = 64;

/// A port that belongs to a node as long as the sandbox lives.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    /// Bound and not listening: connections are refused.
    reserved: Mutex<Option<TcpSocket>>,
}

impl Port {
    /// Takes a port of a host, 0 for any free one. It does not listen yet.
    pub async fn take(host: &str, port: u16) -> io::Result<Self> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in tokio::net::lookup_host((host, port)).await? {
            match bind(address) {
                Ok(socket) => {
                    return Ok(Self { address: socket.local_addr()?, reserved: Mutex::new(Some(socket)) });
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to listen.
    pub fn listen(&self) -> io::Result<TcpListener> {
        let reserved = self.reserved.lock().take();
        let socket = match reserved {
            Some(socket) => socket,
            None => bind(self.address)?,
        };
        socket.listen(BACKLOG)
    }

    /// Keeps the port after its listener is closed.
    pub fn reserve(&self) -> io::Result<()> {
        let mut reserved = self.reserved.lock();
        if reserved.is_none() {
            *reserved = Some(bind(self.address)?);
        }
        Ok(())
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections that ended before a restart still hold the address.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// What the servers of a node watch while they run.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    /// Cancelled when the node stops.
    pub stop: CancellationToken,
    /// True while the node is paused.
    pub paused: watch::Receiver<bool>,
}

/// A listener of a running node.
pub(crate) struct Listener {
    listener: TcpListener,
    running: Running,
}

impl Listener {
    pub fn new(listener: TcpListener, running: Running) -> Self {
        Self { listener, running }
    }

    /// The next connection.
    pub async fn accept(&self) -> (NodeStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => return (NodeStream::new(stream, peer, &self.running), peer),
                Err(error) => {
                    // Out of file descriptors, most likely: they come back when connections end.
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Cancelled when the node stops.
    pub fn stop(&self) -> CancellationToken {
        self.running.stop.clone()
    }

    /// All connections, TLS agreed on where `tls` is given. Clients that fail at it are dropped.
    pub fn connections(self, tls: Option<TlsAcceptor>) -> impl Stream<Item = io::Result<Connection>> + Send {
        futures::stream::unfold(self, |listener| async move {
            let (stream, _peer) = listener.accept().await;
            Some((stream, listener))
        })
        .map(move |stream| secure(stream, tls.clone()))
        .buffer_unordered(TLS_AT_ONCE)
        .filter_map(|connection| async move {
            match connection {
                Ok(connection) => Some(Ok(connection)),
                Err(error) => {
                    tracing::debug!(%error, "TLS handshake failed");
                    None
                }
            }
        })
    }
}

/// Agrees on TLS when an acceptor is given.
pub(crate) async fn secure(stream: NodeStream, tls: Option<TlsAcceptor>) -> io::Result<Connection> {
    let Some(tls) = tls else { return Ok(Connection::Plain(stream)) };
    let agreed = tokio::time::timeout(TLS_TIME, tls.accept(stream)).await;
    let stream = agreed.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake"))??;
    Ok(Connection::Tls(Box::new(stream)))
}

/// Who is at the other end, and the means to cut it off; tonic hands it to each request as an extension.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionInfo {
    pub peer: SocketAddr,
    cut: CancellationToken,
}

impl ConnectionInfo {
    /// Breaks the connection.
    pub fn cut(&self) {
        self.cut.cancel();
    }
}

type PauseChange = Pin<Box<dyn Future<Output = watch::Receiver<bool>> + Send>>;

/// Polls for reading that pass between a cut and the break: what was sent before it is written out meanwhile.
const ROUNDS: u8 = 2;

/// A TCP connection of a node.
pub(crate) struct NodeStream {
    stream: TcpStream,
    info: ConnectionInfo,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    is_cut: Pin<Box<WaitForCancellationFutureOwned>>,
    rounds: u8,
    paused: bool,
    pause_change: PauseChange,
}

impl NodeStream {
    fn new(stream: TcpStream, peer: SocketAddr, running: &Running) -> Self {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set nodelay");
        }
        let cut = CancellationToken::new();
        let mut paused = running.paused.clone();
        let now = *paused.borrow_and_update();
        Self {
            stream,
            stopped: Box::pin(running.stop.clone().cancelled_owned()),
            is_cut: Box::pin(cut.clone().cancelled_owned()),
            rounds: ROUNDS,
            info: ConnectionInfo { peer, cut },
            paused: now,
            pause_change: next_change(paused),
        }
    }

    pub fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Whether a fault cut the connection; a round later each time, so that what was sent is written out.
    fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        std::task::ready!(self.is_cut.as_mut().poll(cx));
        if self.rounds > 0 {
            self.rounds -= 1;
            self.is_cut = Box::pin(self.info.cut.clone().cancelled_owned());
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(io::Error::new(io::ErrorKind::ConnectionAborted, "connection cut by a fault"))
    }

    /// Ready when bytes may move.
    fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.stopped.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server stopped")));
        }
        while let Poll::Ready(mut paused) = self.pause_change.as_mut().poll(cx) {
            self.paused = *paused.borrow_and_update();
            self.pause_change = next_change(paused);
        }
        if self.paused { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

fn next_change(mut paused: watch::Receiver<bool>) -> PauseChange {
    Box::pin(async move {
        if paused.changed().await.is_err() {
            // The sandbox is gone; the stop token ends the connection.
            std::future::pending::<()>().await;
        }
        paused
    })
}

macro_rules! gate {
    ($self:ident, $cx:ident) => {
        match $self.poll_gate($cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
    };
}

impl AsyncRead for NodeStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        gate!(self, cx);
        if let Poll::Ready(error) = self.poll_cut(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        gate!(self, cx);
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
        gate!(self, cx);
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}

/// A connection with or without TLS.
pub(crate) enum Connection {
    Plain(NodeStream),
    Tls(Box<TlsStream<NodeStream>>),
}

impl Connection {
    /// Who is at the other end.
    pub fn info(&self) -> &ConnectionInfo {
        match self {
            Self::Plain(stream) => stream.info(),
            Self::Tls(stream) => stream.get_ref().0.info(),
        }
    }

    /// Whether it is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

impl tonic::transport::server::Connected for Connection {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        self.info().clone()
    }
}

macro_rules! inner {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Connection::Plain(inner) => {
                let $stream = Pin::new(inner);
                $call
            }
            Connection::Tls(inner) => {
                let $stream = Pin::new(inner.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        inner!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_shutdown(cx))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inner!(self, stream => stream.poll_write_vectored(cx, bufs))
    }
}

/// An acceptor, shared by the servers of a node.
pub(crate) fn acceptor(config: Option<&Arc<rustls::ServerConfig>>) -> Option<TlsAcceptor> {
    config.map(|config| TlsAcceptor::from(Arc::clone(config)))
}
