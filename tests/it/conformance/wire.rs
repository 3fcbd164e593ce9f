//! An HTTP/1.1 client that sends exactly what a case says: no header of its own, any framing, no redirect followed.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a request carries.
pub struct Request<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// What came back.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Response {
    /// First value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

fn has(headers: &[(String, String)], name: &str, value: &str) -> bool {
    headers.iter().any(|(n, v)| n.eq_ignore_ascii_case(name) && v.eq_ignore_ascii_case(value))
}

/// Sends one request on a connection of its own. A body that expects a go-ahead waits for it.
pub async fn send(address: SocketAddr, request: Request<'_>) -> io::Result<Response> {
    let mut stream = TcpStream::connect(address).await?;
    let mut head = format!("{} {} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n", request.method, request.path);
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut received = Vec::new();
    if has(&request.headers, "expect", "100-continue") {
        while !complete_head(&received) {
            if stream.read_buf(&mut received).await? == 0 {
                break;
            }
        }
        if !received.starts_with(b"HTTP/1.1 100") {
            stream.read_to_end(&mut received).await?;
            return parse(&received);
        }
        received.clear();
    }
    let body =
        if has(&request.headers, "transfer-encoding", "chunked") { chunked(&request.body) } else { request.body };
    // A server that has answered may close before it has read everything.
    let _ = stream.write_all(&body).await;
    let _ = stream.read_to_end(&mut received).await;
    parse(&received)
}

fn complete_head(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|w| w == b"\r\n\r\n")
}

fn chunked(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // Chunks end inside of lines, as those of a stream do.
    for chunk in body.chunks(7) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

fn parse(bytes: &[u8]) -> io::Result<Response> {
    let broken = || io::Error::other(format!("not an HTTP answer: {:?}", String::from_utf8_lossy(bytes)));
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(broken)?;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.lines();
    let status = lines.next().and_then(|l| l.split(' ').nth(1)).and_then(|s| s.parse().ok()).ok_or_else(broken)?;
    let headers: Vec<(String, String)> =
        lines.filter_map(|l| l.split_once(':')).map(|(n, v)| (n.to_owned(), v.trim().to_owned())).collect();
    let raw = &bytes[end + 4..];
    let body =
        if has(&headers, "transfer-encoding", "chunked") { unchunked(raw).ok_or_else(broken)? } else { raw.to_vec() };
    Ok(Response { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
}

fn unchunked(mut raw: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let line = raw.windows(2).position(|w| w == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..line]).ok()?.split(';').next()?, 16).ok()?;
        if size == 0 {
            return Some(out);
        }
        out.extend_from_slice(raw.get(line + 2..line + 2 + size)?);
        raw = raw.get(line + 4 + size..)?;
    }
}
