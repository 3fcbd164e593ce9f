//! Running the records of a file in order against a sandbox of one profile.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use doris_sandbox::engine::ManualClock;
use doris_sandbox::s3_endpoint::{S3Endpoint, S3Settings};
use doris_sandbox::{FlightConfig, Profile, Sandbox};

use super::flight::Flight;
use super::mysql::Mysql;
use super::record::{File, Record};
use super::wire::{self, Request};
use super::{body, http, matching};

/// Administrator of every sandbox of the suite.
pub const USER: &str = "root";
/// Its password: the colon shows whether user info is taken apart at the first one.
pub const PASSWORD: &str = "s3:cret";
/// The database that every connection starts in.
pub const DATABASE: &str = "shop";

/// 2024-01-01 00:00:00 UTC.
const START_MS: i64 = 1_704_067_200_000;
/// More than any record needs, so that a server that does not answer is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of one record.
pub struct Outcome {
    pub section: String,
    pub counts: bool,
    pub failure: Option<Failure>,
    /// A known gap that is none: its mark can go.
    pub closed: Option<String>,
    /// A known gap that is one.
    pub open: Option<String>,
}

/// A record that did not come out as it says.
pub struct Failure {
    /// File, line and record.
    pub place: String,
    pub profile: Profile,
    pub error: String,
}

/// The sandbox of one run and what the records keep.
pub struct Run {
    pub sandbox: Sandbox,
    pub variables: BTreeMap<String, String>,
    clock: Arc<ManualClock>,
    s3: S3Endpoint,
    mysql: HashMap<String, Mysql>,
    flight: HashMap<String, Flight>,
}

/// Runs every record of `file` that is for `profile`.
pub async fn file(file: Arc<File>, profile: Profile) -> Vec<Outcome> {
    let mut run = match Run::start(&file, profile).await {
        Ok(run) => run,
        Err(error) => {
            let failure = Some(Failure { place: file.path.display().to_string(), profile, error });
            return vec![Outcome { section: "-".to_owned(), counts: false, failure, closed: None, open: None }];
        }
    };
    let mut outcomes = Vec::new();
    for record in &file.records {
        if !record.only.is_empty() && !record.only.contains(&profile) {
            continue;
        }
        let result = match tokio::time::timeout(PATIENCE, run.record(record)).await {
            Ok(result) => result,
            Err(_) => Err("no answer".to_owned()),
        };
        let mark = |reason: &str| format!("{}:{} {reason}", file.path.display(), record.line);
        let (mut closed, mut open) = (None, None);
        let failure = match (&record.gap, result) {
            (None, Ok(())) => None,
            (Some(reason), Err(_)) => {
                open = Some(mark(reason));
                None
            }
            (None, Err(error)) => Some(error),
            (Some(reason), Ok(())) => {
                closed = Some(mark(reason));
                None
            }
        };
        let failure = failure.map(|error| {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            let first = record.input.first().map_or("", String::as_str);
            let place = format!("{name}:{} {} {} {first}", record.line, record.verb, record.arguments);
            Failure { place, profile, error }
        });
        outcomes.push(Outcome {
            section: record.section.clone(),
            counts: record.counts() && record.gap.is_none(),
            failure,
            closed,
            open,
        });
    }
    outcomes
}

impl Run {
    async fn start(file: &File, profile: Profile) -> Result<Self, String> {
        let clock = Arc::new(ManualClock::new(START_MS));
        let mut builder = Sandbox::builder()
            .user(USER)
            .password(PASSWORD)
            .profile(profile)
            .admin_port(0)
            .seed_sql(format!("CREATE DATABASE {DATABASE}"));
        // What is due after a while is due on the machine's clock: the suite does not move while it waits.
        if !file.settings.iter().any(|(name, _)| name == "clock") {
            builder = builder.clock(Arc::clone(&clock) as _);
        }
        let mut flight = FlightConfig::default();
        let mut frontends = 1;
        for (name, value) in &file.settings {
            let number = || value.parse::<u64>().map_err(|e| format!("{name}: {e}"));
            builder = match name.as_str() {
                "time_zone" => builder.time_zone(value),
                "precommit_timeout" => builder.precommit_timeout(Duration::from_secs(number()?)),
                "max_running_transactions" => builder.max_running_transactions(number()? as usize),
                "clock" if value == "system" => builder,
                "frontends" => {
                    frontends = number()? as usize;
                    builder.frontends(frontends)
                }
                "backends" => builder.backends(number()? as usize),
                "flight_token_cache_size" => {
                    flight.token_cache_size = Some(number()? as usize);
                    builder
                }
                "flight_max_connections" => {
                    flight.max_connections = Some(number()? as usize);
                    builder
                }
                "max_user_connections" => {
                    flight.max_user_connections = number()? as usize;
                    builder
                }
                "flight_batch_rows" => {
                    flight.result_sink_buffer_size_rows = number()? as usize;
                    builder
                }
                "be_public_host" => {
                    flight.public_host = Some(value.clone());
                    builder
                }
                other => return Err(format!("no such setting: {other}")),
            };
        }
        let sandbox = builder.flight(flight).start().await.map_err(|e| e.to_string())?;
        let s3 = S3Endpoint::start(S3Settings::default()).await.map_err(|e| e.to_string())?;
        let addresses = sandbox.addresses();
        let admin = sandbox.admin_address().ok_or("no admin endpoint")?;
        let mut variables: BTreeMap<String, String> = [
            ("fe", addresses.fe_http),
            ("be", addresses.be_http),
            ("mysql", addresses.mysql),
            ("fe_flight", addresses.fe_flight),
            ("be_flight", addresses.be_flight),
            ("s3", s3.address()),
            ("admin", admin),
        ]
        .into_iter()
        .flat_map(|(name, address)| {
            [(name.to_owned(), address.to_string()), (format!("{name}_port"), address.port().to_string())]
        })
        .collect();
        for length in [128, 129, 256, 257] {
            variables.insert(format!("letters_{length}"), "x".repeat(length));
        }
        for count in [9_999, 10_001] {
            let list: Vec<String> = (0..count).map(|i| i.to_string()).collect();
            variables.insert(format!("ints_{count}"), list.join(","));
        }
        for number in 1..frontends {
            let other = sandbox.frontend(number).addresses();
            variables.insert(format!("fe{number}"), other.fe_http.to_string());
            variables.insert(format!("mysql{number}"), other.mysql.to_string());
        }
        Ok(Self { sandbox, variables, clock, s3, mysql: HashMap::new(), flight: HashMap::new() })
    }

    async fn record(&mut self, record: &Record) -> Result<(), String> {
        let record = &self.filled(record);
        let words: Vec<&str> = record.arguments.split_whitespace().collect();
        match record.verb.as_str() {
            "advance" => {
                self.clock.advance(record.arguments.trim().parse().map_err(|e| format!("{e}"))?);
                Ok(())
            }
            "arm" => {
                let body = record.input.join("\n").into_bytes();
                let headers = vec![("content-length".to_owned(), body.len().to_string())];
                let request = Request { method: "POST", path: record.arguments.trim(), headers, body };
                let answer = wire::send(self.address("admin")?, request).await.map_err(|e| e.to_string())?;
                if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
            }
            "object" => {
                let [path, how @ ..] = words.as_slice() else { return Err("object BUCKET/KEY [ENCODING]".to_owned()) };
                let (bucket, key) = path.split_once('/').ok_or("object BUCKET/KEY")?;
                let text = record.input.iter().map(|line| format!("{line}\n")).collect::<String>();
                let bytes = if how.is_empty() { text.into_bytes() } else { body::encode(&how.join(" "), &text) };
                self.s3.put(bucket, key, bytes);
                Ok(())
            }
            "setup" | "ok" | "query" | "error" => self.mysql(&record.connection).await?.check(record).await,
            "let" => {
                let value = self.mysql(&record.connection).await?.scalar(&record.sql()).await?;
                self.variables.insert(record.arguments.trim().to_owned(), value);
                Ok(())
            }
            "login" => Mysql::check_login(self.sandbox.addresses().mysql, &words, &record.expected).await,
            "flight" | "flight-error" | "flight-call" => {
                if !self.flight.contains_key(&record.connection) {
                    let flight = Flight::connect(&self.sandbox).await?;
                    self.flight.insert(record.connection.clone(), flight);
                }
                let flight = self.flight.get_mut(&record.connection).ok_or("no connection")?;
                flight.check(record).await
            }
            "http" | "load" => http::check(self, record).await,
            other => Err(format!("no such verb: {other}")),
        }
    }

    async fn mysql(&mut self, name: &str) -> Result<&mut Mysql, String> {
        if !self.mysql.contains_key(name) {
            let connection = Mysql::connect(self.sandbox.addresses().mysql, USER, PASSWORD, Some(DATABASE)).await?;
            self.mysql.insert(name.to_owned(), connection);
        }
        self.mysql.get_mut(name).ok_or_else(|| "no connection".to_owned())
    }

    /// Address of a server by its name in a case.
    pub fn address(&self, name: &str) -> Result<SocketAddr, String> {
        let text = self.variables.get(name).map_or(name, String::as_str);
        text.parse().map_err(|_| format!("no such server: {name}"))
    }

    /// The record with every `$name` replaced.
    fn filled(&self, record: &Record) -> Record {
        let mut filled = record.clone();
        filled.arguments = self.fill(&record.arguments);
        filled.input = record.input.iter().map(|line| self.fill(line)).collect();
        filled.expected = record.expected.iter().map(|line| self.fill(line)).collect();
        filled
    }

    fn fill(&self, text: &str) -> String {
        if !text.contains('$') {
            return text.to_owned();
        }
        let mut text = text.to_owned();
        // Longer names first: `$fe` must not eat the start of `$fe_port`.
        for (name, value) in self.variables.iter().rev() {
            text = text.replace(&format!("${name}"), value);
        }
        text
    }
}

/// Compares the cells of rows.
pub fn compare(record: &Record, got: &[String]) -> Result<(), String> {
    matching::rows(&record.expected, got, record.has("sort"), record.has("among"))
}
