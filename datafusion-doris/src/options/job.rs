//! Settings of a session: of continuous inserts, `SET doris.checkpoint.dir = '…'`, and of what Doris does.

use std::any::Any;
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::error::{DataFusionError, Result};

use super::pushdown::PushdownOptions;
use super::value::{parse_count, parse_duration};

/// `doris.job.stop_timeout` by default.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// `doris.checkpoint.interval` when there is a directory.
const INTERVAL: Duration = Duration::from_secs(10);

/// The settings `doris.*` of a session. An empty value takes a setting back.
///
/// | Setting | Default | Meaning |
/// | --- | --- | --- |
/// | `doris.checkpoint.dir` | | Directory or `s3://bucket/prefix` of checkpoints; without it a continuous insert is at-least-once. |
/// | `doris.checkpoint.interval` | `10s` with a directory | Shortest time between the beginnings of two epochs, unless there is a backlog. |
/// | `doris.checkpoint.retain` | `3` | Checkpoints that are kept, at least 1. |
/// | `doris.job.name` | made of target and plan | Name of the job: of its checkpoints and labels. |
/// | `doris.job.restart_attempts` | any number with a directory, else `0` | Failures in a row that are tried again. |
/// | `doris.job.stop_timeout` | `30s` | How long the shell waits at a signal for the running epoch, before it abandons it. |
/// | `doris.pushdown.…` | `true` | Parts of a query that Doris may do, see [`PushdownOptions`]. |
/// | `doris.job.static_ttl` | `0s` | How old the rows of a joined static table may be when an epoch begins; `0s`: they are read anew in each epoch. |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOptions {
    /// `doris.checkpoint.dir`
    pub checkpoint_dir: Option<String>,
    /// `doris.checkpoint.interval`
    pub checkpoint_interval: Option<Duration>,
    /// `doris.checkpoint.retain`
    pub retain: usize,
    /// `doris.job.name`
    pub job_name: Option<String>,
    /// `doris.job.restart_attempts`
    pub restart_attempts: Option<u32>,
    /// `doris.job.stop_timeout`; for the program that runs jobs: [`crate::job::SyncJob::stop`] waits without a limit.
    pub stop_timeout: Duration,
    /// `doris.job.static_ttl`
    pub static_ttl: Duration,
    /// `doris.pushdown.…`
    pub pushdown: PushdownOptions,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self {
            checkpoint_dir: None,
            checkpoint_interval: None,
            retain: 3,
            job_name: None,
            restart_attempts: None,
            stop_timeout: STOP_TIMEOUT,
            static_ttl: Duration::ZERO,
            pushdown: PushdownOptions::default(),
        }
    }
}

impl JobOptions {
    /// The settings of a session, or the defaults where they are not registered.
    pub fn of(config: &ConfigOptions) -> Self {
        let mut options = config.extensions.get::<Self>().cloned().unwrap_or_default();
        if options.checkpoint_interval.is_none() {
            options.checkpoint_interval =
                config.extensions.get::<ExecutionOptions>().and_then(|execution| execution.checkpointing_interval);
        }
        options
    }

    /// Adds the settings to a session that does not have them; values that are set stay.
    pub fn register(config: &mut ConfigOptions) {
        if config.extensions.get::<Self>().is_none() {
            config.extensions.insert(Self::default());
        }
        if config.extensions.get::<ExecutionOptions>().is_none() {
            config.extensions.insert(ExecutionOptions::default());
        }
    }

    /// The interval in force: without checkpoints and setting the sources alone tell when the next epoch begins.
    pub fn interval(&self, checkpoints: bool) -> Option<Duration> {
        self.checkpoint_interval.or(checkpoints.then_some(INTERVAL))
    }

    /// The attempts in force; `None` = any number.
    pub fn attempts(&self, checkpoints: bool) -> Option<u32> {
        if checkpoints { self.restart_attempts } else { Some(self.restart_attempts.unwrap_or(0)) }
    }
}

/// The one setting of Flink that is taken over: `execution.checkpointing.interval`.
/// `doris.checkpoint.interval` goes before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecutionOptions {
    /// `execution.checkpointing.interval`
    pub checkpointing_interval: Option<Duration>,
}

fn wrong(key: &str, reason: &str) -> DataFusionError {
    DataFusionError::Configuration(format!("setting '{key}': {reason}"))
}

/// The value of `key`; empty = not set.
fn optional<T>(
    key: &str,
    value: &str,
    parse: impl FnOnce(&str) -> std::result::Result<T, String>,
) -> Result<Option<T>> {
    match value.trim() {
        "" => Ok(None),
        value => parse(value).map(Some).map_err(|reason| wrong(key, &reason)),
    }
}

fn entry(key: &str, value: Option<String>, description: &'static str) -> ConfigEntry {
    ConfigEntry { key: key.to_string(), value, description }
}

impl ConfigExtension for JobOptions {
    const PREFIX: &'static str = "doris";
}

impl ExtensionOptions for JobOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let full = format!("doris.{key}");
        match key.replace('-', "_").as_str() {
            "checkpoint.dir" => self.checkpoint_dir = optional(&full, value, |dir| Ok(dir.to_string()))?,
            "checkpoint.interval" => self.checkpoint_interval = optional(&full, value, parse_duration)?,
            "checkpoint.retain" => {
                let retain = optional(&full, value, parse_count)?.unwrap_or(Self::default().retain);
                if retain == 0 {
                    return Err(wrong(&full, "must be at least 1"));
                }
                self.retain = retain;
            }
            "job.name" => self.job_name = optional(&full, value, |name| Ok(name.to_string()))?,
            "job.restart_attempts" => {
                let parse = |text: &str| {
                    let count = parse_count(text)?;
                    u32::try_from(count).map_err(|_| format!("'{text}' is out of range"))
                };
                self.restart_attempts = optional(&full, value, parse)?;
            }
            "job.stop_timeout" => {
                self.stop_timeout = optional(&full, value, parse_duration)?.unwrap_or(STOP_TIMEOUT);
            }
            "job.static_ttl" => self.static_ttl = optional(&full, value, parse_duration)?.unwrap_or_default(),
            key => {
                if let Some(part) = key.strip_prefix("pushdown.")
                    && let Some(result) = self.pushdown.set(part, value)
                {
                    return result.map_err(|reason| wrong(&full, &reason));
                }
                let known: Vec<String> = self.entries().into_iter().map(|entry| entry.key).collect();
                return Err(wrong(&full, &format!("is not known; there are {}", known.join(", "))));
            }
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let seconds = |interval: Duration| format!("{}ms", interval.as_millis());
        let mut entries = vec![
            entry(
                "doris.checkpoint.dir",
                self.checkpoint_dir.clone(),
                "Directory or s3://bucket/prefix of checkpoints; without it a continuous insert is at-least-once",
            ),
            entry(
                "doris.checkpoint.interval",
                self.checkpoint_interval.map(seconds),
                "Shortest time between the beginnings of two epochs, unless there is a backlog; 10s with a directory",
            ),
            entry("doris.checkpoint.retain", Some(self.retain.to_string()), "Checkpoints that are kept"),
            entry("doris.job.name", self.job_name.clone(), "Name of the job: of its checkpoints and labels"),
            entry(
                "doris.job.restart_attempts",
                self.restart_attempts.map(|attempts| attempts.to_string()),
                "Failures in a row that are tried again; any number with a directory, else 0",
            ),
            entry(
                "doris.job.stop_timeout",
                Some(seconds(self.stop_timeout)),
                "How long the shell waits at a signal for the running epoch, before it abandons it",
            ),
            entry(
                "doris.job.static_ttl",
                Some(seconds(self.static_ttl)),
                "How old the rows of a joined static table may be; 0ms: they are read anew in each epoch",
            ),
        ];
        entries.extend(self.pushdown.entries());
        entries
    }
}

impl ConfigExtension for ExecutionOptions {
    const PREFIX: &'static str = "execution";
}

impl ExtensionOptions for ExecutionOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let full = format!("execution.{key}");
        if key != "checkpointing.interval" {
            return Err(wrong(&full, "is not known; of execution.* there is execution.checkpointing.interval"));
        }
        self.checkpointing_interval = optional(&full, value, parse_duration)?;
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let value = self.checkpointing_interval.map(|interval| format!("{}ms", interval.as_millis()));
        vec![entry(
            "execution.checkpointing.interval",
            value,
            "The same as doris.checkpoint.interval, which goes before it",
        )]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn config() -> ConfigOptions {
        let mut config = ConfigOptions::new();
        JobOptions::register(&mut config);
        config
    }

    #[test]
    fn settings_are_read_and_taken_back() {
        let mut config = config();
        for (key, value) in [
            ("doris.checkpoint.dir", "/tmp/checkpoints"),
            ("doris.checkpoint.interval", "1 min"),
            ("doris.checkpoint.retain", "5"),
            ("doris.job.name", "orders"),
            ("doris.job.restart-attempts", "7"),
            ("doris.job.stop_timeout", "5s"),
            ("doris.job.static-ttl", "10m"),
            ("doris.pushdown.topk", "false"),
            ("doris.pushdown.dynamic-filter", "false"),
            ("doris.pushdown.limit", "false"),
            ("doris.pushdown.limit", ""),
            ("execution.checkpointing.interval", "3s"),
        ] {
            config.set(key, value).unwrap();
        }
        JobOptions::register(&mut config);
        let options = JobOptions::of(&config);
        assert_eq!(
            options,
            JobOptions {
                checkpoint_dir: Some("/tmp/checkpoints".into()),
                checkpoint_interval: Some(Duration::from_secs(60)),
                retain: 5,
                job_name: Some("orders".into()),
                restart_attempts: Some(7),
                stop_timeout: Duration::from_secs(5),
                static_ttl: Duration::from_secs(600),
                pushdown: PushdownOptions { topk: false, dynamic_filter: false, ..Default::default() },
            }
        );
        for key in [
            "doris.checkpoint.dir",
            "doris.checkpoint.interval",
            "doris.job.name",
            "doris.job.restart_attempts",
            "doris.job.static_ttl",
        ] {
            config.set(key, "").unwrap();
        }
        let options = JobOptions::of(&config);
        assert_eq!(options.checkpoint_interval, Some(Duration::from_secs(3)), "that of Flink is left");
        assert_eq!((options.checkpoint_dir, options.job_name, options.static_ttl), (None, None, Duration::ZERO));
    }

    #[test]
    fn defaults_depend_on_checkpoints() {
        let options = JobOptions::of(&ConfigOptions::new());
        assert_eq!((options.interval(true), options.interval(false)), (Some(INTERVAL), None));
        assert_eq!((options.attempts(true), options.attempts(false)), (None, Some(0)));
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        let mut config = config();
        for (key, value, part) in [
            ("doris.checkpoint.interval", "soon", "soon"),
            ("doris.checkpoint.retain", "0", "at least 1"),
            ("doris.job.restart_attempts", "-1", "whole number"),
            ("doris.job.stop_timeout", "soon", "soon"),
            ("doris.job.static_ttl", "for ever", "for ever"),
            ("doris.pushdown.join", "maybe", "maybe"),
            ("doris.pushdown.sort", "true", "doris.pushdown.topk"),
            ("doris.checkpoint.folder", "x", "doris.checkpoint.dir"),
            ("execution.parallelism", "4", "execution.checkpointing.interval"),
        ] {
            let error = config.set(key, value).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(part), "{key}: {error}");
        }
        let keys: Vec<String> = config.entries().into_iter().map(|entry| entry.key).collect();
        assert!(keys.contains(&"doris.checkpoint.dir".to_string()), "{keys:?}");
    }
}
