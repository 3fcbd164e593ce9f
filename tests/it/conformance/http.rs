//! Requests to the REST interface and loads.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::body;
use super::matching::{cell, glob, json_text, keys};
use super::record::Record;
use super::run::{PASSWORD, Run, USER};
use super::wire::{self, Request, Response};

/// Runs one `http` or `load` record.
///
/// Some headers of a case are for this function: `auth` (`none` or `user:password`; the administrator otherwise),
/// `expect: none`, `framing` (`length`, the default, `chunked`, `none`, `both`, or a length that is a lie) and `encode`
/// (see [`body::encode`]), `eol: none` (the last line of the body has no end) and `column_separator: default` (that
/// header stays away; loads have a comma there unless they name another or a format).
pub async fn check(run: &mut Run, record: &Record) -> Result<(), String> {
    let words: Vec<&str> = record.arguments.split_whitespace().collect();
    let load = record.verb == "load";
    let (method, server, path) = match (load, words.as_slice()) {
        (true, [server, target]) => {
            let (db, table) = target.split_once('.').ok_or("load fe|be DATABASE.TABLE")?;
            ("PUT", *server, format!("/api/{db}/{table}/_stream_load"))
        }
        (false, [method, server, path]) => (*method, *server, (*path).to_owned()),
        (false, [method, url]) => {
            let rest = url.strip_prefix("http://").ok_or("not a URL")?;
            let (server, path) = rest.split_once('/').ok_or("a URL without path")?;
            (*method, server, format!("/{path}"))
        }
        _ => return Err(format!("{} METHOD SERVER PATH", record.verb)),
    };
    let mut headers: Vec<(String, String)> = Vec::new();
    let (mut auth, mut expect, mut framing, mut encode) = (None, load, "length".to_owned(), None);
    let mut eol = "\n";
    let mut lines: Vec<&str> = Vec::new();
    for line in &record.input {
        if let Some(header) = line.strip_prefix("> ") {
            let (name, value) = header.split_once(':').ok_or_else(|| format!("not a header: {header}"))?;
            let value = value.trim().to_owned();
            match name {
                "auth" => auth = Some(value),
                "expect" if value == "none" => expect = false,
                "framing" => framing = value,
                "encode" => encode = Some(value),
                "eol" if value == "none" => eol = "",
                _ => headers.push((name.to_owned(), value)),
            }
        } else {
            lines.push(line.strip_prefix("< ").or_else(|| line.strip_prefix('<')).ok_or_else(|| format!("{line}?"))?);
        }
    }
    let separator = headers.iter().position(|(name, value)| name == "column_separator" && value == "default");
    if let Some(at) = separator {
        headers.remove(at);
    } else if load && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("format") || name == "column_separator")
    {
        headers.push(("column_separator".to_owned(), ",".to_owned()));
    }
    if expect && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("expect")) {
        headers.push(("Expect".to_owned(), "100-continue".to_owned()));
    }
    let text = if load && !lines.is_empty() { lines.join("\n") + eol } else { lines.join("\n") };
    let bytes = encode.map_or_else(|| text.clone().into_bytes(), |how| body::encode(&how, &text));
    match framing.as_str() {
        "length" if bytes.is_empty() && matches!(method, "GET" | "DELETE") => {}
        "length" => headers.push(("Content-Length".to_owned(), bytes.len().to_string())),
        "chunked" => headers.push(("Transfer-Encoding".to_owned(), "chunked".to_owned())),
        "both" => {
            headers.push(("Content-Length".to_owned(), bytes.len().to_string()));
            headers.push(("Transfer-Encoding".to_owned(), "chunked".to_owned()));
        }
        "none" => {}
        lie => headers.push(("Content-Length".to_owned(), lie.to_owned())),
    }
    let auth = auth.unwrap_or_else(|| format!("{USER}:{PASSWORD}"));
    if auth != "none" && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
        headers.push(("Authorization".to_owned(), format!("Basic {}", STANDARD.encode(auth))));
    }
    let mut address = run.address(server)?;
    let mut request = Request { method, path: &path, headers, body: bytes };
    let mut response = exchange(address, &request).await?;
    let wants_status =
        record.expected.iter().any(|line| line.strip_prefix("status ").is_some_and(|rest| !rest.starts_with('=')));
    let target;
    if response.status == 307 && !wants_status {
        let location = response.header("location").ok_or("a redirect without location")?;
        let rest = location.split_once("://").ok_or("not a URL")?.1;
        let (authority, path) = rest.split_once('/').ok_or("no path")?;
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        address = host.parse().map_err(|e| format!("{host}: {e}"))?;
        target = format!("/{path}");
        request.path = &target;
        response = exchange(address, &request).await?;
    }
    let outcome = judge(run, &record.expected, &response);
    outcome.map_err(|error| {
        format!("{error}\nanswer {} {:?}\n{}", response.status, response.headers, squeezed(&response.body))
    })
}

async fn exchange(address: std::net::SocketAddr, request: &Request<'_>) -> Result<Response, String> {
    let copy = Request {
        method: request.method,
        path: request.path,
        headers: request.headers.clone(),
        body: request.body.clone(),
    };
    wire::send(address, copy).await.map_err(|e| e.to_string())
}

fn judge(run: &mut Run, expected: &[String], response: &Response) -> Result<(), String> {
    let json: Option<Value> = serde_json::from_str(&response.body).ok();
    let at = |path: &str| json.as_ref().and_then(|json| json_text(json, path));
    for line in expected {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let right = match word {
            "header" => {
                let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                let got = response.header(name);
                if value == "absent" { got.is_none() } else { got.is_some_and(|got| glob(value, got)) }
            }
            "body" => glob(rest, &cell(Some(response.body.trim_end()))),
            "keys" => keys(&response.body).join(" ") == rest,
            path if rest.starts_with('=') => {
                let value = rest[1..].strip_prefix(' ').unwrap_or(&rest[1..]);
                at(path).is_some_and(|got| glob(value, &got))
            }
            "status" => response.status.to_string() == rest,
            name if rest.starts_with("<- ") => {
                let value = at(&rest[3..]).ok_or_else(|| format!("no {rest}"))?;
                run.variables.insert(name.to_owned(), value);
                true
            }
            path if rest == "absent" => at(path).is_none(),
            _ => return Err(format!("no such expectation: {line}")),
        };
        if !right {
            return Err(format!("expected {line}"));
        }
    }
    Ok(())
}

/// A body on one line, for a message.
fn squeezed(body: &str) -> String {
    body.split_whitespace().collect::<Vec<_>>().join(" ")
}
