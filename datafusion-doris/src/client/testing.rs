//! An HTTP server for tests: it answers requests from a queue, in order, and keeps what it got.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use datafusion::common::runtime::{JoinSet, SpawnedTask};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::DorisClient;
use crate::options::{ConnectionOptions, Secret};

/// What to do with a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Read all of it, then answer.
    Answer { status: u16, headers: Vec<(String, String)>, body: String },
    /// Answer after the head, whatever the body; it is read and thrown away.
    Early { body: String },
    /// Read all of it, then close the connection without an answer.
    Lose,
    /// Close the connection after this many bytes of the body.
    Cut(usize),
    /// Read all of it and keep the connection open without an answer.
    Hang,
}

impl Reply {
    pub(crate) fn ok(body: impl Into<String>) -> Self {
        Reply::Answer { status: 200, headers: Vec::new(), body: body.into() }
    }

    /// The FE's envelope around `data`.
    pub(crate) fn data(data: serde_json::Value) -> Self {
        Self::ok(serde_json::json!({ "msg": "success", "code": 0, "data": data, "count": 0 }).to_string())
    }

    pub(crate) fn redirect(location: impl Into<String>) -> Self {
        Reply::Answer { status: 307, headers: vec![("Location".into(), location.into())], body: String::new() }
    }
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// `PUT /path HTTP/1.1`
    pub(crate) line: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// The body came to its end.
    pub(crate) complete: bool,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

#[derive(Debug)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    received: watch::Sender<Vec<Received>>,
    /// Requests whose head came.
    begun: watch::Sender<usize>,
}

/// The server. Stops when dropped; a reply that was not used fails the test then.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: String,
    shared: Arc<Shared>,
    _task: SpawnedTask<()>,
}

impl Server {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            replies: Mutex::new(replies.into_iter().collect()),
            received: watch::Sender::new(Vec::new()),
            begun: watch::Sender::new(0),
        });
        let serving = Arc::clone(&shared);
        let task = SpawnedTask::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, Arc::clone(&serving)));
            }
        });
        Self { address, shared, _task: task }
    }

    /// More replies, for servers that refer to each other.
    pub(crate) fn then(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.replies.lock().extend(replies);
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.borrow().clone()
    }

    /// Waits until `count` requests came (or broke off).
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<Received> {
        let mut received = self.shared.received.subscribe();
        let all = received.wait_for(|all| all.len() >= count).await.unwrap();
        all.clone()
    }

    /// Waits until `count` requests have begun.
    pub(crate) async fn wait_for_begun(&self, count: usize) {
        self.shared.begun.subscribe().wait_for(|begun| *begun >= count).await.unwrap();
    }

    /// Request lines without version.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |request: Received| request.line.trim_end_matches(" HTTP/1.1").to_string();
        self.received().into_iter().map(line).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let unused = self.shared.replies.lock().len();
        if unused > 0 && !std::thread::panicking() {
            panic!("{unused} replies were not used; got {:?}", self.lines());
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut stream = BufReader::new(stream);
    let Some((line, headers)) = read_head(&mut stream).await else {
        return;
    };
    let reply = shared.replies.lock().pop_front();
    shared.begun.send_modify(|begun| *begun += 1);
    let mut request = Received { line, headers, body: Vec::new(), complete: false };
    let limit = match &reply {
        Some(Reply::Cut(bytes)) => *bytes,
        _ => usize::MAX,
    };
    let (status, extra, body) = match reply {
        None => (500, Vec::new(), "no reply is left for this request".to_string()),
        Some(Reply::Early { body }) => (200, Vec::new(), body),
        Some(other) => {
            request.complete = read_body(&mut stream, &request.headers, &mut request.body, limit).await;
            shared.received.send_modify(|all| all.push(request.clone()));
            match other {
                Reply::Answer { status, headers, body } if request.complete => {
                    answer(&mut stream, status, &headers, &body).await;
                }
                Reply::Hang => std::future::pending().await,
                _ => {}
            }
            return;
        }
    };
    shared.received.send_modify(|all| all.push(request));
    answer(&mut stream, status, &extra, &body).await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
}

async fn answer(stream: &mut BufReader<TcpStream>, status: u16, headers: &[(String, String)], body: &str) {
    let mut text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.flush().await;
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await {
            Ok(b'\n') => break,
            Ok(byte) => line.push(byte),
            Err(_) => return None,
        }
    }
    Some(String::from_utf8_lossy(&line).trim_end_matches('\r').to_string())
}

async fn read_head(stream: &mut BufReader<TcpStream>) -> Option<(String, BTreeMap<String, String>)> {
    let line = read_line(stream).await?;
    let mut headers = BTreeMap::new();
    loop {
        let header = read_line(stream).await?;
        if header.is_empty() {
            return Some((line, headers));
        }
        let (name, value) = header.split_once(':').unwrap();
        headers.insert(name.to_ascii_lowercase(), value.trim().to_string());
    }
}

/// Whether the body came to its end before `limit` and before the connection did.
async fn read_body(
    stream: &mut BufReader<TcpStream>,
    headers: &BTreeMap<String, String>,
    body: &mut Vec<u8>,
    limit: usize,
) -> bool {
    if headers.get("transfer-encoding").is_none_or(|encoding| encoding != "chunked") {
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        return read_exact(stream, body, length, limit).await;
    }
    loop {
        let Some(size) = read_line(stream).await else {
            return false;
        };
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let more = read_exact(stream, body, size, limit).await && read_line(stream).await.is_some();
        if !more || size == 0 {
            return more;
        }
    }
}

async fn read_exact(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>, length: usize, limit: usize) -> bool {
    for _ in 0..length {
        if body.len() >= limit {
            return false;
        }
        match stream.read_u8().await {
            Ok(byte) => body.push(byte),
            Err(_) => return false,
        }
    }
    true
}

/// Options for `frontends`, user `root`, a password that needs care everywhere.
pub(crate) fn options(frontends: &[&str]) -> ConnectionOptions {
    let nodes = frontends.iter().map(|node| node.to_string()).collect();
    ConnectionOptions::new("unused:1", "app_rw", Secret::new("p@ss:/w%rd#1")).with_fenodes(nodes)
}

pub(crate) fn client(frontends: &[&str]) -> DorisClient {
    DorisClient::try_new(Arc::new(options(frontends))).unwrap()
}

/// An address nobody listens at.
pub(crate) async fn dead_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

/// A load's answer.
pub(crate) fn loaded(status: &str, message: &str, rows: u64) -> String {
    serde_json::json!({
        "TxnId": 4711, "Label": "l", "TwoPhaseCommit": "true", "Status": status, "Message": message,
        "NumberTotalRows": rows, "NumberLoadedRows": rows, "NumberFilteredRows": 0, "NumberUnselectedRows": 0,
    })
    .to_string()
}
