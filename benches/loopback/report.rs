//! Figures with their bars.

use std::fmt;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::measure::Series;
use crate::common::table::Table;

/// What a figure must be.
#[derive(Debug, Clone, Copy)]
pub enum Bar {
    /// At least.
    Least(f64),
    /// At most.
    Most(f64),
    /// Told, not judged; the more the better.
    More,
    /// Told, not judged; the less the better.
    Less,
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bar::Least(bar) => write!(f, "≥ {bar}"),
            Bar::Most(bar) => write!(f, "≤ {bar}"),
            Bar::More | Bar::Less => f.write_str("-"),
        }
    }
}

/// The runs behind a figure.
#[derive(Debug, Clone, Copy)]
struct Runs {
    wall: f64,
    spread: f64,
    cpu: f64,
    grown: f64,
}

/// One line of the table.
#[derive(Debug)]
pub struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    bar: Bar,
    /// Differences up to this one say nothing.
    slack: f64,
    runs: Option<Runs>,
    bytes: Option<u64>,
    rows: Option<u64>,
    /// What it stands beside: the baseline of the same run.
    beside: String,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str, bar: Bar) -> Self {
        let (runs, bytes, rows) = (None, None, None);
        Self { name: name.into(), value, unit, bar, slack: 0.0, runs, bytes, rows, beside: String::new() }
    }

    /// The runs that it comes from.
    pub fn of(mut self, series: &Series) -> Self {
        let (wall, spread, cpu, grown) = (series.wall(), series.spread(), series.cpu(), series.grown());
        self.runs = Some(Runs { wall, spread, cpu, grown });
        self
    }

    /// What each run moved.
    pub fn moved(mut self, bytes: Option<u64>, rows: u64) -> Self {
        (self.bytes, self.rows) = (bytes, Some(rows));
        self
    }

    /// Differences between two runs of the program, in the unit of the figure, that say nothing.
    pub fn slack(mut self, slack: f64) -> Self {
        self.slack = slack;
        self
    }

    /// Names the baseline.
    pub fn beside(mut self, beside: impl Into<String>) -> Self {
        self.beside = beside.into();
        self
    }

    fn passes(&self) -> Option<bool> {
        match self.bar {
            Bar::Least(bar) => Some(self.value >= bar),
            Bar::Most(bar) => Some(self.value <= bar),
            Bar::More | Bar::Less => None,
        }
    }

    fn json(&self) -> Value {
        let (least, most) = match self.bar {
            Bar::Least(bar) => (Some(bar), None),
            Bar::Most(bar) => (None, Some(bar)),
            Bar::More | Bar::Less => (None, None),
        };
        json!({
            "name": self.name,
            "value": rounded(self.value),
            "unit": self.unit,
            "better": if matches!(self.bar, Bar::Least(_) | Bar::More) { "more" } else { "less" },
            "at_least": least,
            "at_most": most,
            "passes": self.passes(),
            "slack": self.slack,
            "wall_s": self.runs.map(|runs| rounded(runs.wall)),
            "spread_percent": self.runs.map(|runs| rounded(runs.spread)),
            "cpu_s": self.runs.map(|runs| rounded(runs.cpu)),
            "grown_mb": self.runs.map(|runs| rounded(runs.grown)),
            "bytes": self.bytes,
            "rows": self.rows,
            "beside": self.beside,
        })
    }
}

/// Four digits are more than any measurement here is worth.
fn rounded(value: f64) -> Value {
    let digits = 3 - value.abs().log10().floor().clamp(-6.0, 3.0) as i32;
    let scale = 10f64.powi(digits);
    if value.is_finite() { json!((value * scale).round() / scale) } else { Value::Null }
}

fn shown(value: Option<f64>, digits: usize) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{value:.digits$}"),
        _ => "-".to_owned(),
    }
}

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Report(Vec<Figure>);

impl Report {
    /// Adds a figure, and tells it at once.
    pub fn add(&mut self, figure: Figure) {
        let verdict = match figure.passes() {
            Some(true) => "passes ",
            Some(false) => "MISSES ",
            None => "",
        };
        let Figure { name, value, unit, bar, beside, .. } = &figure;
        let bar = if verdict.is_empty() { String::new() } else { format!(", {verdict}{bar}") };
        let spread = figure.runs.map(|runs| format!(", spread {:.0} %", runs.spread)).unwrap_or_default();
        let beside = if beside.is_empty() { String::new() } else { format!(" ({beside})") };
        eprintln!("    {name}: {value:.3} {unit}{bar}{spread}{beside}");
        self.0.push(figure);
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let head = ["figure", "value", "unit", "bar", "passes", "wall s", "± %", "CPU s", "MB", "rows", "RSS + MB"];
        let mut table = Table::new(&head.into_iter().chain(["beside"]).collect::<Vec<_>>());
        for figure in &self.0 {
            let passes = figure.passes().map_or("-", |passes| if passes { "yes" } else { "NO" });
            let of = |of: fn(&Runs) -> f64| figure.runs.as_ref().map(of);
            table.row(vec![
                figure.name.clone(),
                format!("{:.3}", figure.value),
                figure.unit.to_owned(),
                figure.bar.to_string(),
                passes.to_owned(),
                shown(of(|runs| runs.wall), 3),
                shown(of(|runs| runs.spread), 0),
                shown(of(|runs| runs.cpu), 3),
                shown(figure.bytes.map(|bytes| bytes as f64 / 1e6), 0),
                figure.rows.map_or_else(|| "-".to_owned(), |rows| rows.to_string()),
                shown(of(|runs| runs.grown), 0),
                figure.beside.clone(),
            ]);
        }
        table.render()
    }

    /// The figures, with what they were measured on.
    pub fn json(&self, runs: u64, percent: u64) -> Value {
        json!({
            "date": chrono::Utc::now().format("%Y-%m-%d").to_string(),
            "commit": commit(),
            "machine": machine(),
            "profile": if cfg!(debug_assertions) { "dev" } else { "release" },
            "runs": runs,
            "percent": percent,
            "figures": self.0.iter().map(Figure::json).collect::<Vec<_>>(),
        })
    }

    /// Names of the figures that miss their bar.
    pub fn missed(&self) -> Vec<&str> {
        self.0.iter().filter(|figure| figure.passes() == Some(false)).map(|figure| figure.name.as_str()).collect()
    }
}

/// The commit that is measured, with `+` when files differ from it.
fn commit() -> Value {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match (git(&["rev-parse", "--short=10", "HEAD"]), git(&["status", "--porcelain", "--untracked-files=no"])) {
        (Some(commit), Some(changes)) => json!(format!("{commit}{}", if changes.is_empty() { "" } else { "+" })),
        _ => Value::Null,
    }
}

/// What kind of machine this is: nothing that tells which one.
fn machine() -> Value {
    let field = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    json!({
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "memory_gb": memory.map(|kilobytes| (kilobytes / (1024.0 * 1024.0)).round()),
    })
}
