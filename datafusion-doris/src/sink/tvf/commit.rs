//! Running the statement of a staged load until its label tells that the rows are in the table; and taking it back.

use std::time::Duration;

use tokio::time::Instant;

use super::refusals::Refusals;
use super::step::{Step, Undo, towards_nothing, towards_visible};
use super::{Stage, Taken};
use crate::checkpoint::{Committable, Staged};
use crate::client::DorisConnection;
use crate::client::retry::Backoff;
use crate::error::{Error, Result, Retry};
use crate::failpoints;
use crate::protocol::{DELETE_SIGN, LabelState};
use crate::sink::committer::{Aborted, Committer, failure};
use crate::sql::StagedInsert;
use crate::types::TableIdent;

/// How long a statement that was sent is waited for to begin.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(60);

/// How an attempt to run the statement ended.
pub(super) enum Ran {
    /// The server says that the rows are committed.
    Committed(Taken),
    /// The statement was not sent.
    NotSent(Error),
    /// The server says that it failed.
    Refused(Error),
    /// The server says that it ended well, with no row of the objects.
    NothingRead(Error),
    /// The answer was lost.
    Lost(Error),
}

impl Committer {
    fn stage_of<'a>(&'a self, load: &Committable, staged: &Staged) -> Result<&'a Stage> {
        let reason = match &self.stage {
            Some(stage) if stage.place.bucket == staged.bucket => return Ok(stage),
            Some(_) => format!("its rows are staged in bucket {}: set 'sink.s3.bucket' back to it", staged.bucket),
            None => format!(
                "its rows are staged in s3://{}/{}: write with 'sink.write-mode' = 'TVF' until they are in the table",
                staged.bucket, staged.folder
            ),
        };
        Err(failure("commit", load, reason, Retry::Never))
    }

    /// Takes the rows of a staged load into the table; gives what became of them.
    ///
    /// # Errors
    /// The server's refusal ([`Retry::Never`] or its own); [`Error::NothingRead`], which the state of the label must not
    /// overrule; [`Retry::AskLabelState`] when the outcome is not known in the end. The objects stay.
    pub(in crate::sink) async fn insert(&self, load: &Committable, staged: &Staged) -> Result<Taken> {
        let stage = self.stage_of(load, staged)?;
        let deadline = Instant::now() + self.patience;
        let mut backoff = Backoff::new();
        let (mut attempts, mut refused, mut last) = (0, None, None);
        let mut refusals = Refusals::new();
        // An attempt without an answer may still begin.
        let mut lost = false;
        loop {
            let observed = match self.client.label_state(&load.db, &load.label).await {
                Err(error @ Error::Auth { .. }) => return Err(error),
                Err(error) => error.to_string(),
                Ok(state) => match towards_visible(load.kind(), state) {
                    Step::Done => return Ok(self.found_visible(stage, load, staged).await),
                    Step::Wait => format!("the label is {state}"),
                    Step::Forgotten => {
                        let reason = "the server does not know its label, or has forgotten it: whether its rows are in \
                                      the table cannot be told";
                        return Err(failure("commit", load, reason.into(), Retry::AskLabelState));
                    }
                    Step::Run => {
                        if let Some(error) = refused.take() {
                            let pause = refusals.pause(&error).filter(|pause| Instant::now() + *pause <= deadline);
                            let Some(pause) = pause.filter(|_| attempts <= self.max_retries) else {
                                if !lost {
                                    stage.in_doubt.lock().remove(&load.label);
                                }
                                return Err(refusals.given_up(error));
                            };
                            tracing::debug!(label = %load.label, %error, ?pause, "running the INSERT again");
                            tokio::time::sleep(pause).await;
                        }
                        if attempts > self.max_retries {
                            let unknown =
                                || failure("commit", load, format!("the label is {state}"), Retry::AskLabelState);
                            return Err(last.take().unwrap_or_else(unknown));
                        }
                        attempts += 1;
                        stage.check_objects(staged).await?;
                        let ran = self.run(stage, load, staged).await;
                        if matches!(ran, Ran::Refused(_) | Ran::NothingRead(_) | Ran::Lost(_)) {
                            stage.metrics.failed();
                        }
                        match ran {
                            Ran::Committed(taken) => {
                                stage.in_doubt.lock().remove(&load.label);
                                if taken.missing == 0 {
                                    stage.clean_up(staged).await;
                                }
                                return Ok(taken);
                            }
                            // Not asked for the state of the label, which is that of rows that are in the table.
                            Ran::NothingRead(error) => {
                                stage.in_doubt.lock().remove(&load.label);
                                return Err(error);
                            }
                            Ran::NotSent(error @ Error::Auth { .. }) | Ran::NotSent(error @ Error::Config { .. }) => {
                                return Err(error);
                            }
                            Ran::NotSent(error) => last = Some(error),
                            Ran::Lost(error) => {
                                lost = true;
                                last = Some(error);
                            }
                            // Somebody else runs it: its label tells how that ends.
                            Ran::Refused(error) if is_label_taken(&error) => last = Some(error),
                            Ran::Refused(error) => {
                                refused = Some(error);
                                // Its transaction has ended.
                                continue;
                            }
                        }
                        if let Some(error) = &last {
                            tracing::warn!(label = %load.label, %error, "asking for the state of a staged load");
                        }
                        "the answer was lost".to_string()
                    }
                },
            };
            let pause = backoff.next_pause();
            if Instant::now() + pause > deadline {
                let reason = format!("{observed} after {} s", self.patience.as_secs());
                return Err(refused.unwrap_or_else(|| failure("commit", load, reason, Retry::AskLabelState)));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// The label of a load tells that its rows are in the table: counts them, if this process has sent the statement and
    /// heard no answer, and removes the objects, if so asked.
    async fn found_visible(&self, stage: &Stage, load: &Committable, staged: &Staged) -> Taken {
        let ran = stage.in_doubt.lock().remove(&load.label);
        let taken = self.uncounted(stage, load, staged, ran).await;
        stage.clean_up(staged).await;
        taken
    }

    /// [`Self::insert`] ended with an error, or was not called, and the label tells that the rows are in the table.
    pub(in crate::sink) async fn tidy_up(&self, load: &Committable, staged: &Staged) {
        let Ok(stage) = self.stage_of(load, staged) else { return };
        let in_doubt = stage.in_doubt.lock().contains(&load.label);
        if in_doubt {
            self.found_visible(stage, load, staged).await;
        } else {
            stage.clean_up(staged).await;
        }
    }

    async fn run(&self, stage: &Stage, load: &Committable, staged: &Staged) -> Ran {
        let mut connection = match self.session(stage).await {
            Ok(connection) => connection,
            Err(error) => return Ran::NotSent(error),
        };
        if let Err(error) = failpoints::request(failpoints::COMMIT) {
            return Ran::NotSent(error);
        }
        let sql = stage.statement(load, staged);
        stage.in_doubt.lock().insert(load.label.clone());
        stage.metrics.loads.add(1);
        let begun = Instant::now();
        let answered = async {
            let outputs = connection.execute(&sql).await?;
            failpoints::answer(failpoints::COMMITTED)?;
            Ok::<_, Error>(outputs)
        };
        let outputs = match tokio::time::timeout(self.patience, answered).await {
            Ok(Ok(outputs)) => outputs,
            Ok(Err(Error::Server { host, operation: _, code, message })) => {
                return Ran::Refused(self.refused(stage, (load, staged), (host, code, message)).await);
            }
            // Of a privilege.
            Ok(Err(Error::Auth { host, message })) => {
                return Ran::Refused(Error::Auth { host, message: stage.place.masked(&message) });
            }
            Ok(Err(error)) => return Ran::Lost(error),
            Err(_) => {
                let reason = format!("no answer within {} s", self.patience.as_secs());
                return Ran::Lost(failure("commit", load, reason, Retry::AskLabelState));
            }
        };
        let told = outputs.into_iter().last().unwrap_or_default();
        self.answered(stage, (load, staged), connection, told, begun.elapsed()).await
    }

    /// A connection whose next statement is the INSERT.
    async fn session(&self, stage: &Stage) -> Result<DorisConnection> {
        let mut connection = self.client.connection().await?;
        connection.execute(&stage.settings.to_sql()).await?;
        Ok(connection)
    }

    /// Takes a staged load back: waits for a statement that may be running, and removes the objects unless it has taken
    /// them into the table; its rows are counted then. Not to be called after [`Error::NothingRead`].
    ///
    /// # Errors
    /// [`Error::Transaction`] when the statement does not come to an end. The objects stay.
    pub(in crate::sink) async fn take_back(&self, load: &Committable, staged: &Staged) -> Result<Aborted> {
        let (begun, mut backoff) = (Instant::now(), Backoff::new());
        loop {
            let state = self.client.label_state(&load.db, &load.label).await?;
            let in_doubt = self.stage.as_ref().is_some_and(|stage| stage.in_doubt.lock().contains(&load.label));
            match towards_nothing(in_doubt, state) {
                Undo::Committed => {
                    // It has won, and nobody else comes by.
                    let taken = match self.stage_of(load, staged) {
                        Ok(stage) if !staged.keys.is_empty() => Some(self.found_visible(stage, load, staged).await),
                        _ => None,
                    };
                    return Ok(Aborted::Committed { said: format!("its label is {state}"), taken });
                }
                Undo::Remove => {
                    if let Ok(stage) = self.stage_of(load, staged) {
                        stage.in_doubt.lock().remove(&load.label);
                        stage.remove_folder(&staged.folder).await;
                    }
                    return Ok(Aborted::Gone);
                }
                Undo::Wait => {}
            }
            // A statement that is not begun by then is most likely lost, but not for certain.
            let patience = if state == LabelState::Unknown { UNKNOWN_PATIENCE } else { self.patience };
            let pause = backoff.next_pause();
            if begun.elapsed() + pause > patience {
                let reason = format!("its statement was sent and its label is {state}: its staged objects stay");
                return Err(failure("abort", load, reason, Retry::AskLabelState));
            }
            tokio::time::sleep(pause).await;
        }
    }
}

impl Stage {
    /// The statement of a load. It holds the credentials.
    fn statement(&self, load: &Committable, staged: &Staged) -> String {
        StagedInsert {
            table: &TableIdent::new(&load.db, &load.table),
            label: &load.label,
            columns: &self.columns,
            delete_sign: self.delete_sign.then_some(DELETE_SIGN),
            last_of_key: self.last_of_key.as_ref(),
            sequence: self.sequence.as_deref(),
            place: &self.place,
            keys: &staged.keys,
            format: &staged.format,
            compression: staged.compression.as_deref(),
        }
        .to_sql()
    }
}

/// Decides nothing alone: the label is asked for its state after every refusal.
fn is_label_taken(error: &Error) -> bool {
    matches!(error, Error::Server { message, .. } if message.contains("has already been used"))
}
