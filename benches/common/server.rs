//! A sandbox in a process of its own, so that its work is not counted as the client's.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use datafusion::prelude::SessionContext;
use datafusion_doris::client::DorisConnection;
use datafusion_doris::options::Secret;
use doris_sandbox::Sandbox;
use doris_sandbox::s3_endpoint::{S3Endpoint, S3Settings};
use serde_json::{Value, json};

use super::Outcome;

/// Argument that makes a bench the server.
const SERVE: &str = "serve-sandbox";
/// User of the server.
pub const USER: &str = "root";
/// Password of [`USER`].
pub const PASSWORD: &str = "bench";
/// Access key of the object store.
pub const ACCESS_KEY: &str = "bench";
/// Secret key of the object store.
pub const SECRET_KEY: &str = "bench-secret";

/// True when this process was started to be the server.
pub fn is_server() -> bool {
    std::env::args().any(|argument| argument == SERVE)
}

/// Variable that sets glibc's allocator.
pub const TUNABLES: &str = "GLIBC_TUNABLES";
/// Memory that was freed is kept, as the allocators do that most programs with DataFusion choose. By default glibc gives it back
/// where the heap happens to end with it, and takes it anew page by page: rates then differ by half from one start to the next.
pub const KEEP_MEMORY: &str = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=268435456";

/// Moves the clock on by a second.
const ADVANCE: &str = "advance";
/// Asks for the requests since the last time.
const REQUESTS: &str = "requests";

/// Serves until standard input is closed. Each line there is one of [`ADVANCE`] and [`REQUESTS`].
pub async fn serve() -> Outcome<()> {
    let sandbox = Sandbox::builder().user(USER).password(PASSWORD).start().await?;
    let settings = S3Settings { access_key: Some(ACCESS_KEY.into()), ..S3Settings::default() };
    let s3 = S3Endpoint::start(settings).await?;
    let addresses = sandbox.addresses();
    let told = json!({
        "fenodes": sandbox.fenodes(),
        "jdbc_url": sandbox.jdbc_url(),
        "fe_flight": addresses.fe_flight.to_string(),
        "be_flight": addresses.be_flight.to_string(),
        "be_http": addresses.be_http.to_string(),
        "s3": s3.url(),
        "pid": std::process::id(),
    });
    println!("{told}");
    std::io::stdout().flush()?;
    tokio::task::spawn_blocking(move || -> Outcome<()> {
        let mut counted = 0;
        for line in std::io::stdin().lines() {
            if line? == REQUESTS {
                // Not all of many are kept, but each has its number.
                let kept = sandbox.requests().all();
                sandbox.requests().clear();
                let next = kept.last().map_or(counted, |request| request.order + 1);
                let mut by_kind = BTreeMap::<String, u64>::new();
                for request in &kept {
                    *by_kind.entry(format!("{:?} {}", request.site, request.method)).or_default() += 1;
                }
                println!("{}", json!({ "total": next - counted, "kept": kept.len(), "by_kind": by_kind }));
                counted = next;
            } else {
                sandbox.advance_clock(Duration::from_secs(1));
                println!("{ADVANCE}");
            }
            std::io::stdout().flush()?;
        }
        Ok(())
    })
    .await?
}

/// The server process; it ends with this one.
pub struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// FE, `host:http_port`.
    pub fenodes: String,
    /// FE, MySQL protocol.
    pub jdbc_url: String,
    /// FE, Arrow Flight SQL.
    pub fe_flight: String,
    /// BE, Arrow Flight SQL.
    pub be_flight: String,
    /// BE, HTTP.
    pub be_http: String,
    /// The object store.
    pub s3: String,
    /// Process id of the server.
    pub pid: u32,
}

impl Server {
    /// Starts this program again, as the server.
    pub fn start() -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .env(TUNABLES, KEEP_MEMORY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().ok_or("the server has no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let told: Value = serde_json::from_str(&line).map_err(|error| format!("the server did not start: {error}"))?;
        let text = |name: &str| told[name].as_str().map(str::to_owned).ok_or_else(|| format!("no {name}"));
        Ok(Self {
            child,
            input,
            output,
            fenodes: text("fenodes")?,
            jdbc_url: text("jdbc_url")?,
            fe_flight: text("fe_flight")?,
            be_flight: text("be_flight")?,
            be_http: text("be_http")?,
            s3: text("s3")?,
            pid: u32::try_from(told["pid"].as_u64().ok_or("no pid")?)?,
        })
    }

    /// Moves its clock on by a second.
    pub fn advance(&mut self) -> Outcome<()> {
        let answer = self.ask(ADVANCE)?;
        if answer == ADVANCE { Ok(()) } else { Err(format!("the server answered '{answer}'").into()) }
    }

    /// The number of requests since this was asked last, and how many of those that it still knows were of which kind.
    pub fn requests(&mut self) -> Outcome<(u64, Vec<(String, u64)>)> {
        let answer: Value = serde_json::from_str(&self.ask(REQUESTS)?)?;
        let number = |value: &Value| value.as_u64().ok_or("no number of requests");
        let kinds = answer["by_kind"].as_object().ok_or("no kinds of requests")?;
        let kinds = kinds.iter().map(|(kind, count)| Ok((kind.clone(), number(count)?)));
        Ok((number(&answer["total"])?, kinds.collect::<Outcome<_>>()?))
    }

    fn ask(&mut self, command: &str) -> Outcome<String> {
        let input = self.input.as_mut().ok_or("the server has no input")?;
        writeln!(input, "{command}")?;
        input.flush()?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Runs statements in Doris; the first value of their answer.
    pub async fn doris(&self, sql: &str) -> Outcome<Option<String>> {
        let mut connection = DorisConnection::connect(&self.jdbc_url, USER, &Secret::new(PASSWORD)).await?;
        let outputs = connection.execute(sql).await.map_err(|error| format!("{sql}: {error}"))?;
        Ok(outputs.into_iter().flat_map(|output| output.rows).next().and_then(|row| row.into_iter().next().flatten()))
    }

    /// Declares `bench.{table}` as `name`; `options` begin with a comma.
    pub async fn declare(&self, context: &SessionContext, name: &str, table: &str, options: &str) -> Outcome<()> {
        declare(context, &self.fenodes, &self.jdbc_url, name, table, options).await
    }
}

/// Declares `bench.{table}` as `name`; `options` begin with a comma.
pub async fn declare(
    context: &SessionContext,
    fenodes: &str,
    jdbc_url: &str,
    name: &str,
    table: &str,
    options: &str,
) -> Outcome<()> {
    let sql = format!(
        "CREATE EXTERNAL TABLE {name} STORED AS DORIS OPTIONS ('fenodes' '{fenodes}', 'jdbc-url' '{jdbc_url}',
         'table.identifier' 'bench.{table}', 'username' '{USER}', 'password' '{PASSWORD}' {options})"
    );
    datafusion_doris::sql(context, &sql).await?.collect().await?;
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        // Nothing to do about a child that cannot be waited for.
        let _ = self.child.wait();
    }
}
