//! A connection through this process that notes when marked rows pass.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::common::Outcome;

/// What a marked row holds, followed by [`DIGITS`] digits.
const MARK: &[u8] = b"mark-";
const DIGITS: usize = 8;
/// Bytes read at once.
const PIECE: usize = 64 << 10;

/// The text of a row's mark.
pub fn mark(number: u32) -> String {
    format!("mark-{number:08}")
}

/// Which of the two directions is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// What the server sends; a row is there once it was handed to the client.
    Answers,
    /// What the client sends; a row is there once it was taken from the client.
    Requests,
}

/// When each mark passed first.
type Marks = Arc<Mutex<HashMap<u32, Instant>>>;

/// A port that leads to a server.
pub struct Wire {
    /// `host:port` to connect to.
    pub address: String,
    marks: Marks,
    accepting: JoinHandle<()>,
}

impl Wire {
    /// Begins to pass connections on to `server`.
    pub async fn start(server: &str, watched: Watched) -> Outcome<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, marks) = (listener.local_addr()?.to_string(), Marks::default());
        let (server, noted) = (server.to_owned(), Arc::clone(&marks));
        let accepting = tokio::spawn(async move {
            // Ends them with this task.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (server, noted) = (server.clone(), Arc::clone(&noted));
                connections.spawn(async move {
                    // A connection that breaks is seen by those who hold its ends.
                    let _ = connect(client, &server, watched, noted).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, marks, accepting })
    }

    /// When each mark passed.
    pub fn seen(&self) -> HashMap<u32, Instant> {
        locked(&self.marks).clone()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn locked(marks: &Marks) -> MutexGuard<'_, HashMap<u32, Instant>> {
    marks.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connect(client: TcpStream, server: &str, watched: Watched, marks: Marks) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let of = |side: Watched| (side == watched).then(|| Arc::clone(&marks));
    let requests = pass(from_client, to_server, of(Watched::Requests), Watched::Requests);
    let answers = pass(from_server, to_client, of(Watched::Answers), Watched::Answers);
    tokio::try_join!(requests, answers).map(drop)
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    marks: Option<Marks>,
    side: Watched,
) -> std::io::Result<()> {
    let (mut piece, mut text) = (vec![0; PIECE], Vec::new());
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        let taken = Instant::now();
        to.write_all(&piece[..length]).await?;
        let Some(marks) = &marks else { continue };
        let at = if side == Watched::Requests { taken } else { Instant::now() };
        text.extend_from_slice(&piece[..length]);
        note(&text, at, &mut locked(marks));
        // A mark may be cut in two.
        let tail = text.len().min(MARK.len() + DIGITS - 1);
        text.drain(..text.len() - tail);
    }
}

fn note(text: &[u8], at: Instant, marks: &mut HashMap<u32, Instant>) {
    for window in text.windows(MARK.len() + DIGITS).filter(|window| window.starts_with(MARK)) {
        let digits = std::str::from_utf8(&window[MARK.len()..]).ok();
        if let Some(number) = digits.and_then(|digits| digits.parse().ok()) {
            marks.entry(number).or_insert(at);
        }
    }
}
