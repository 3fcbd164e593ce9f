//! Checkpoints in an object store.

use std::sync::Arc;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use percent_encoding::percent_decode_str;
use reqwest::Url;

use super::{CheckpointStore, Created};
use crate::error::{Error, Result, Retry};

/// Objects below a prefix. The store must know conditional writes (`If-None-Match: *`), as S3 and its kin do.
#[derive(Debug, Clone)]
pub struct ObjectStoreCheckpoints {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    location: String,
}

impl ObjectStoreCheckpoints {
    /// Objects of `store` below `prefix`; `location` is what people see.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: Path, location: impl Into<String>) -> Self {
        Self { store, prefix, location: location.into() }
    }

    /// The store of `url`, and in it the directory `directory`; `options` are credentials and settings by the names of
    /// their environment variables. What is none of these is left alone.
    ///
    /// # Errors
    /// [`Error::Config`] when the URL names no store that this crate knows.
    pub fn from_url(url: &str, directory: &str, options: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let base = Self::base(url, options)?;
        let location = format!("{}/{directory}", base.location);
        Ok(Self::new(base.store, base.prefix.join(directory.to_string()), location))
    }

    /// The place that `url` names.
    fn base(url: &str, options: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        // What stands before an `@` may be a secret, also in a text that is no URL.
        let shown = match (url.split_once("://"), url.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
            _ => url.to_string(),
        };
        let refused =
            |reason: String| Error::config("doris.checkpoint.dir", format!("'{shown}' cannot be used: {reason}"));
        let parsed = Url::parse(url).map_err(|error| refused(error.to_string()))?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            let reason = "credentials belong into the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)";
            return Err(Error::config("doris.checkpoint.dir", reason));
        }
        let options = options.into_iter().filter(|(key, _)| key.to_ascii_uppercase().starts_with("AWS_"));
        let (store, path) =
            object_store::parse_url_opts(&parsed, options).map_err(|error| refused(error.to_string()))?;
        Ok(Self::new(store.into(), path, url.trim_end_matches('/')))
    }

    /// The names of the directories of `url`, with `options` as in [`Self::from_url`].
    ///
    /// # Errors
    /// As [`Self::from_url`]; [`Error::CheckpointStore`].
    pub async fn directories(url: &str, options: impl IntoIterator<Item = (String, String)>) -> Result<Vec<String>> {
        let base = Self::base(url, options)?;
        let listed = base.store.list_with_delimiter(Some(&base.prefix)).await;
        let listed = listed.map_err(|error| base.failed("listing", "", error))?;
        let name = |path: &Path| percent_decode_str(path.filename()?).decode_utf8().ok().map(|name| name.into_owned());
        Ok(listed.common_prefixes.iter().filter_map(name).collect())
    }

    fn path(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    fn failed(&self, operation: &'static str, name: &str, error: object_store::Error) -> Error {
        use object_store::Error as E;
        let retry = match &error {
            E::NotFound { .. }
            | E::InvalidPath { .. }
            | E::NotSupported { .. }
            | E::NotImplemented { .. }
            | E::PermissionDenied { .. }
            | E::Unauthenticated { .. }
            | E::UnknownConfigurationKey { .. } => Retry::Never,
            _ => Retry::SameLabel,
        };
        let object = format!("{}/{name}", self.location);
        Error::CheckpointStore { operation, object, retry, source: Box::new(error) }
    }
}

#[async_trait]
impl CheckpointStore for ObjectStoreCheckpoints {
    async fn list(&self) -> Result<Vec<String>> {
        // Not what lies deeper: another job may have its checkpoints below.
        let listed = self.store.list_with_delimiter(Some(&self.prefix)).await;
        let objects = listed.map_err(|error| self.failed("listing", "", error))?.objects;
        Ok(objects.iter().filter_map(|object| object.location.filename().map(str::to_string)).collect())
    }

    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let read = async { self.store.get(&self.path(name)).await?.bytes().await };
        match read.await {
            Ok(content) => Ok(Some(content.to_vec())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("reading", name, error)),
        }
    }

    async fn create(&self, name: &str, content: Vec<u8>) -> Result<Created> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.store.put_opts(&self.path(name), content.into(), options).await {
            Ok(_) => Ok(Created::Created),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(Created::Exists)
            }
            Err(error) => Err(self.failed("creating", name, error)),
        }
    }

    async fn put(&self, name: &str, content: Vec<u8>) -> Result<()> {
        let written = self.store.put(&self.path(name), content.into()).await;
        written.map(drop).map_err(|error| self.failed("writing", name, error))
    }

    async fn delete(&self, name: &str) -> Result<()> {
        match self.store.delete(&self.path(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("removing", name, error)),
        }
    }

    fn location(&self) -> String {
        self.location.clone()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn checkpoints_of_a_job_below_are_not_those_of_this_one() {
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let upper = ObjectStoreCheckpoints::new(Arc::clone(&memory), Path::from("p/x"), "memory://p/x");
        let lower = ObjectStoreCheckpoints::new(memory, Path::from("p/x/y"), "memory://p/x/y");
        upper.put("checkpoint-1.json", b"x".to_vec()).await.unwrap();
        lower.put("checkpoint-2.json", b"y".to_vec()).await.unwrap();
        assert_eq!(upper.list().await.unwrap(), ["checkpoint-1.json"]);
        assert_eq!(lower.list().await.unwrap(), ["checkpoint-2.json"]);
    }

    #[test]
    fn credentials_in_a_url_are_not_shown() {
        for url in ["s3://key:s3cret@bucket/p", "s3://key:s3cret@bad host/p", "gopher://key:s3cret@x/y"] {
            let error = ObjectStoreCheckpoints::from_url(url, "j", []).unwrap_err().to_string();
            assert!(!error.contains("s3cret") && error.contains("doris.checkpoint.dir"), "{error}");
        }
    }
}
