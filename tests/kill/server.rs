//! A sandbox in a process of its own, and its admin endpoint.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::{BINARY, PASSWORD};

/// FEs. The shell knows all but the last, which is never stopped: the source is written through it.
const FRONTENDS: usize = 3;
pub const BACKENDS: usize = 2;

/// FEs that the shell knows.
pub const KNOWN_FRONTENDS: usize = FRONTENDS - 1;

/// Actions that break a connection.
const CUTS: [&str; 4] = ["drop_answer", "cut_after_bytes", "cut_answer_after_bytes", "flight_cut_after_batches"];

/// The process; it ends when dropped.
pub struct Server {
    process: Child,
    ready: Value,
    http: reqwest::Client,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How many faults met a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    pub cuts: usize,
    pub others: usize,
    /// Faults that still wait.
    pub armed: usize,
    /// Of the others, those that hold a request back.
    pub delays: usize,
}

impl Server {
    pub fn start(log: &Path) -> Self {
        let log = std::fs::File::create(log).expect("a log");
        let (frontends, backends) = (FRONTENDS.to_string(), BACKENDS.to_string());
        let mut process = Command::new(BINARY)
            .args(["sandbox", "--frontends", &frontends, "--backends", &backends])
            .args(["--admin-port", "0", "--user", "root", "--password", PASSWORD])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the sandbox starts");
        let mut line = String::new();
        let out = process.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let ready = serde_json::from_str(&line).expect("the addresses");
        Self { process, ready, http: reqwest::Client::builder().no_proxy().build().expect("a client") }
    }

    fn nodes(&self, kind: &str, address: &str) -> Vec<String> {
        let nodes = self.ready["nodes"].as_array().expect("nodes");
        let of_kind = nodes.iter().filter(|node| node["node"].as_str().is_some_and(|name| name.starts_with(kind)));
        of_kind.map(|node| node[address].as_str().expect("an address").to_string()).collect()
    }

    /// `fenodes` of the shell.
    pub fn fenodes(&self) -> String {
        self.nodes("fe", "http")[..KNOWN_FRONTENDS].join(",")
    }

    /// `jdbc-url` of the shell.
    pub fn jdbc_url(&self) -> String {
        format!("jdbc:mysql://{}", self.nodes("fe", "mysql")[..KNOWN_FRONTENDS].join(","))
    }

    /// MySQL address of the FE that nothing happens to.
    pub fn mysql(&self) -> String {
        self.nodes("fe", "mysql")[KNOWN_FRONTENDS].clone()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.ready["admin"].as_str().expect("an admin port"))
    }

    async fn answer(request: reqwest::RequestBuilder) -> Value {
        let answer = request.send().await.expect("the admin endpoint answers");
        let (status, text) = (answer.status(), answer.text().await.expect("a text"));
        assert!(status.is_success(), "{status}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    pub async fn get(&self, path: &str) -> Value {
        Self::answer(self.http.get(self.url(path))).await
    }

    pub async fn post(&self, path: &str) -> Value {
        Self::answer(self.http.post(self.url(path))).await
    }

    pub async fn arm(&self, fault: &Value) {
        Self::answer(self.http.post(self.url("/faults")).json(fault)).await;
    }

    /// Disarms all faults.
    pub async fn disarm(&self) {
        Self::answer(self.http.delete(self.url("/faults"))).await;
    }

    pub async fn applied(&self) -> Applied {
        let faults = self.get("/faults").await;
        let mut applied = Applied { armed: faults["armed"].as_array().map_or(0, Vec::len), ..Applied::default() };
        for fault in faults["applied"].as_array().expect("a list") {
            match fault["action"].as_str() {
                Some(action) if CUTS.contains(&action) => applied.cuts += 1,
                action => {
                    applied.others += 1;
                    applied.delays += usize::from(action == Some("delay"));
                }
            }
        }
        applied
    }

    /// Transactions that are neither committed nor aborted.
    pub async fn running_transactions(&self) -> u64 {
        self.get("/state").await["running_transactions"].as_u64().expect("a count")
    }
}

/// What the backends saw of loads, gathered before the sandbox forgets it.
#[derive(Default)]
pub struct Loads {
    next: u64,
    /// Transactions whose commit was answered with success.
    committed: BTreeSet<String>,
    /// One line each, for those who look for a row.
    pub lines: Vec<String>,
}

impl Loads {
    pub async fn gather(&mut self, server: &Server) {
        let seen = server.get("/requests?site=be&contains=_stream_load").await;
        for request in seen.as_array().expect("a list") {
            let order = request["order"].as_u64().expect("a number");
            // One that is not answered yet is taken the next time.
            if order < self.next || request["status"].is_null() && request["fault"].is_null() {
                continue;
            }
            self.next = order + 1;
            let header = |name: &str| {
                let headers = request["headers"].as_array().into_iter().flatten();
                let found = headers.filter(|header| header[0] == name).find_map(|header| header[1].as_str());
                found.unwrap_or_default().to_string()
            };
            if header("txn_operation") == "commit" && request["status"] == 200 {
                self.committed.insert(header("label") + &header("txn_id"));
            }
            self.lines.push(format!(
                "#{order} {} {} label {} txn {} {} bytes {} status {} fault {}",
                request["node"],
                request["target"],
                header("label"),
                header("txn_id"),
                header("txn_operation"),
                request["body_bytes"],
                request["status"],
                request["fault"]
            ));
        }
    }

    /// Gathers without an end.
    pub async fn watch(&mut self, server: &Server) {
        loop {
            self.gather(server).await;
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        }
    }

    /// Epochs that were committed.
    pub fn epochs(&self) -> usize {
        self.committed.len()
    }
}
