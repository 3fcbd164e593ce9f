//! Loads of other processes, ended by hand.

use std::time::Duration;

use async_trait::async_trait;

use super::committer::Committer;
use crate::checkpoint::admin::LoadService;
use crate::checkpoint::{AbortOutcome, CommitPermit, Committable};
use crate::client::DorisClient;
use crate::error::Result;
use crate::protocol::LabelState;

/// Further attempts of a commit or an abort.
const RETRIES: usize = 3;
/// How long the state of a label may stay open.
const PATIENCE: Duration = Duration::from_secs(60);

/// The loads of a cluster, whoever has written them.
#[derive(Debug, Clone)]
pub struct DorisLoads {
    committer: Committer,
}

impl DorisLoads {
    /// Loads on the cluster of `client`.
    pub fn new(client: DorisClient) -> Self {
        Self { committer: Committer { client, max_retries: RETRIES, patience: PATIENCE, stage: None } }
    }
}

#[async_trait]
impl LoadService for DorisLoads {
    async fn label_state(&self, load: &Committable) -> Result<LabelState> {
        self.committer.client.label_state(&load.db, &load.label).await
    }

    async fn commit(&self, load: &Committable, _permit: &CommitPermit) -> Result<()> {
        self.committer.commit_all(std::slice::from_ref(load)).await.map(drop)
    }

    async fn abort(&self, load: &Committable) -> Result<AbortOutcome> {
        self.committer.abort_all(std::slice::from_ref(load)).await.map(|(outcome, _)| outcome)
    }
}
