//! Refusals of a statement that pass by themselves, as a rule: how long they are waited for.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::retry::Backoff;
use crate::error::{Error, Retry};
use crate::protocol::{LoadEvent, LoadKind, LoadStep, Refusal, after_load, error_log_in};

/// The refusals of one statement so far.
pub(super) struct Refusals {
    soon: Backoff,
    /// For a server that has to get rid of work first.
    later: Backoff,
    first: Option<Instant>,
    count: usize,
}

/// What a refusal means, if it is one of rows or of the statement: then it stays.
fn passing(error: &Error) -> Option<(Refusal, Retry)> {
    let Error::Server { message, .. } = error else { return None };
    // It tells of rows, in whose values anything may stand.
    if error_log_in(message).is_some() {
        return None;
    }
    let reason = Refusal::of(message);
    match after_load(LoadEvent::Refused(reason), LoadKind::Plain) {
        LoadStep::Failed(retry @ (Retry::SameLabel | Retry::Later)) => Some((reason, retry)),
        _ => None,
    }
}

impl Refusals {
    pub(super) fn new() -> Self {
        Self { soon: Backoff::new(), later: Backoff::patient(), first: None, count: 0 }
    }

    /// The pause before the statement is run again; `None` = there is no use in that.
    pub(super) fn pause(&mut self, error: &Error) -> Option<Duration> {
        self.first.get_or_insert_with(Instant::now);
        self.count += 1;
        passing(error).map(|(_, retry)| match retry {
            Retry::Later => self.later.next_pause(),
            _ => self.soon.next_pause(),
        })
    }

    /// Says how often it was tried, and what can be done.
    pub(super) fn given_up(&self, error: Error) -> Error {
        let (Some((reason, _)), Some(first)) = (passing(&error), self.first) else { return error };
        match error {
            Error::Server { host, operation, code, message } => {
                let advice = reason.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
                let (count, seconds) = (self.count, first.elapsed().as_secs());
                let message = format!("{message} (refused {count} times in {seconds} s{advice})");
                Error::Server { host, operation, code, message }
            }
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn passing_refusals_are_waited_for_and_others_are_not() {
        let error = |message: &str| Error::Server {
            host: "fe:9030".into(),
            operation: "the INSERT".into(),
            code: Some(1105),
            message: message.into(),
        };
        let log = "http://be:8040/api/_load_error_log?file=x";
        let told = format!("Insert has filtered data in strict mode. first error: src line [-235]. url: {log}");
        for (message, least_ms) in [
            ("[E-235]failed to init rowset builder. version count: 2001, exceed limit: 2000", Some(250)),
            ("current running txns on db 1 is 1000, larger than limit 1000", Some(250)),
            ("alive replica num 0 < load required replica num 1", Some(50)),
            ("Memory limit exceeded", Some(50)),
            ("Execute timeout", None),
            ("Unknown column 'x' in 'table list'", None),
            (told.as_str(), None),
        ] {
            let mut refusals = Refusals::new();
            let pause = refusals.pause(&error(message)).map(|pause| pause.as_millis());
            match (pause, least_ms) {
                (Some(pause), Some(least)) => assert!((least..=2 * least).contains(&pause), "{message}: {pause} ms"),
                (pause, least) => assert_eq!(pause, least, "{message}"),
            }
            tokio::time::advance(Duration::from_secs(7)).await;
            refusals.pause(&error(message));
            let told = refusals.given_up(error(message)).to_string();
            assert_eq!(told.contains("refused 2 times in 7 s"), least_ms.is_some(), "{told}");
        }
        let mut refusals = Refusals::new();
        assert_eq!(refusals.pause(&Error::Auth { host: "fe".into(), message: "memory limit".into() }), None);
    }
}
