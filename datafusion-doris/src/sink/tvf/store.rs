//! The object store: opening it, looking for objects, removing them; and what its errors mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use super::Stage;
use crate::checkpoint::{Staged, StagedObject};
use crate::error::{Error, Result, Retry};
use crate::options::{OptionKey, S3Options};

/// The store of a place. Nothing is sent.
///
/// # Errors
/// [`Error::Config`].
pub(super) fn open(place: &S3Options, max_retries: usize) -> Result<Arc<dyn ObjectStore>> {
    crate::client::install_crypto_provider();
    let retry = RetryConfig { max_retries, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::new()
        .with_endpoint(place.base_url())
        .with_region(&place.region)
        .with_bucket_name(&place.bucket)
        .with_virtual_hosted_style_request(!place.in_path())
        .with_access_key_id(place.access_key.reveal())
        .with_secret_access_key(place.secret_key.reveal())
        .with_retry(retry)
        .with_client_options(ClientOptions::new().with_allow_http(true));
    if let Some(token) = &place.session_token {
        builder = builder.with_token(token.reveal());
    }
    let store = builder.build();
    let store =
        store.map_err(|error| Error::config(OptionKey::S3Endpoint.as_ref(), place.masked(&error.to_string())))?;
    Ok(Arc::new(store))
}

/// A key as it is: nothing in it is encoded.
pub(super) fn path(key: &str) -> Result<Path> {
    Path::parse(key).map_err(|error| Error::config(OptionKey::S3Prefix.as_ref(), error.to_string()))
}

impl Stage {
    /// The error of a request about `key`.
    pub(super) fn failed(&self, operation: &'static str, key: &str, error: &object_store::Error) -> Error {
        use object_store::Error as E;
        // A store repeats parts of a request in its answer.
        let text = self.place.masked(&error.to_string());
        if matches!(error, E::PermissionDenied { .. } | E::Unauthenticated { .. }) {
            let host = self.place.endpoint.split_once("://").map_or("", |(_, host)| host).to_string();
            return Error::Auth { host, message: format!("{operation} {}: {text}", self.object(key)) };
        }
        let retry = match error {
            E::NotFound { .. }
            | E::InvalidPath { .. }
            | E::NotSupported { .. }
            | E::NotImplemented { .. }
            | E::UnknownConfigurationKey { .. } => Retry::Never,
            _ => Retry::SameLabel,
        };
        let text = match error {
            E::NotFound { .. } => format!("{text} (is there a bucket '{}'?)", self.place.bucket),
            _ => text,
        };
        Error::Staging { operation, object: self.object(key), retry, source: text.into() }
    }

    fn object(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.place.bucket)
    }

    /// Whether the objects are there as they were written.
    ///
    /// # Errors
    /// [`Error::Staging`] that names the first that is not: its rows are gone.
    pub(super) async fn check_objects(&self, staged: &Staged) -> Result<()> {
        match self.missing_object(staged).await? {
            None => Ok(()),
            Some(key) => Err(Error::Staging {
                operation: "finding",
                object: self.object(&key),
                retry: Retry::Never,
                source: "it was removed or replaced before its rows were in the table".into(),
            }),
        }
    }

    /// The first object that is not there as it was written.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub(in crate::sink) async fn missing_object(&self, staged: &Staged) -> Result<Option<String>> {
        let folder = path(&staged.folder)?;
        let listed = self.store.list(Some(&folder)).try_collect::<Vec<_>>().await;
        let listed = listed.map_err(|error| self.failed("listing", &staged.folder, &error))?;
        let sizes: BTreeMap<&str, u64> = listed.iter().map(|meta| (meta.location.as_ref(), meta.size)).collect();
        let missing = |object: &&StagedObject| sizes.get(object.key.as_str()) != Some(&object.bytes);
        Ok(staged.objects.iter().find(missing).map(|object| object.key.clone()))
    }

    /// Removes everything under the label of a load, as far as possible.
    pub(super) async fn remove_folder(&self, folder: &str) {
        let removed = async {
            let folder = path(folder).map_err(|error| error.to_string())?;
            let keys = self.store.list(Some(&folder)).map_ok(|meta| meta.location).boxed();
            let gone = self.store.delete_stream(keys).try_collect::<Vec<_>>().await;
            gone.map(|gone| gone.len()).map_err(|error| self.place.masked(&error.to_string()))
        };
        match removed.await {
            Ok(objects) => tracing::debug!(folder, objects, "staged objects are removed"),
            Err(error) => tracing::warn!(folder, %error, "staged objects were not removed"),
        }
    }

    /// Removes the objects of a load whose rows are in the table, if so asked.
    pub(in crate::sink) async fn clean_up(&self, staged: &Staged) {
        if self.place.clean_up {
            self.remove_folder(&staged.folder).await;
        }
    }
}
