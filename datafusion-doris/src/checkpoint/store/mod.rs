//! Where checkpoints are kept.

mod local;
mod object;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

pub use self::local::LocalStore;
pub use self::object::ObjectStoreCheckpoints;
use crate::error::{Error, Result};

/// What a conditional write found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The object is there now, and durable.
    Created,
    /// There was one of that name already, and it was left as it is.
    Exists,
}

/// The checkpoints of one job: a few small objects with plain names.
///
/// What an implementation must promise:
///
/// - **Atomic**: an object is read whole, or is not there.
/// - **Durable**: a write that was answered outlives a crash of process and machine.
/// - **Read after write**: what was written is seen by every later `read` and `list`, from every process.
/// - **One winner**: of several `create` of one name, from any processes, exactly one gives [`Created::Created`].
///
/// A write whose answer is an error may have happened nevertheless.
#[async_trait]
pub trait CheckpointStore: Send + Sync + fmt::Debug {
    /// The names of all objects, in no order.
    ///
    /// # Errors
    /// [`Error::CheckpointStore`]; a job without objects is no error.
    async fn list(&self) -> Result<Vec<String>>;

    /// The content of an object; `None` when there is none of that name.
    ///
    /// # Errors
    /// [`Error::CheckpointStore`].
    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Writes an object unless there is one of that name.
    ///
    /// # Errors
    /// [`Error::CheckpointStore`].
    async fn create(&self, name: &str, content: Vec<u8>) -> Result<Created>;

    /// Writes an object, in the place of an earlier one.
    ///
    /// # Errors
    /// [`Error::CheckpointStore`].
    async fn put(&self, name: &str, content: Vec<u8>) -> Result<()>;

    /// Removes an object; one that is not there is fine.
    ///
    /// # Errors
    /// [`Error::CheckpointStore`].
    async fn delete(&self, name: &str) -> Result<()>;

    /// Removes what is left of writes that were cut off, as by the end of their process. A generation that has taken
    /// over does so; a write of another one at this moment may fail, and can be repeated.
    ///
    /// # Errors
    /// [`Error::CheckpointStore`].
    async fn sweep(&self) -> Result<()> {
        Ok(())
    }

    /// Where it is, for people; without credentials.
    fn location(&self) -> String;
}

/// Letters that a job name keeps as the name of a directory.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The name of a job's own directory.
fn directory_of(job: &str) -> Result<String> {
    if job.trim().is_empty() {
        return Err(Error::config("doris.job.name", "is empty; give the job a name"));
    }
    let name = utf8_percent_encode(job, KEPT).to_string();
    // Neither hidden, nor the parent.
    Ok(if name.starts_with('.') { name.replacen('.', "%2E", 1) } else { name })
}

/// The job whose directory has this name; `None` = no job's.
fn job_of(directory: &str) -> Option<String> {
    let job = percent_decode_str(directory).decode_utf8().ok()?.into_owned();
    directory_of(&job).ok().filter(|own| own == directory).map(|_| job)
}

/// The names of all jobs that may have something below `dir`, sorted; what is not the directory of a job is left out.
///
/// # Errors
/// [`Error::Config`] for a location that cannot be used, [`Error::Checkpoint`] for a directory that is not there,
/// [`Error::CheckpointStore`].
pub async fn jobs(dir: &str) -> Result<Vec<String>> {
    let dir = dir.trim();
    if dir.is_empty() {
        return Err(Error::config("doris.checkpoint.dir", "is empty; name a directory or s3://bucket/prefix"));
    }
    let directories = match dir.strip_prefix("file://") {
        Some(path) => LocalStore::new(path).directories().await?,
        None if dir.contains("://") => ObjectStoreCheckpoints::directories(dir, std::env::vars()).await?,
        None => LocalStore::new(dir).directories().await?,
    };
    let mut jobs: Vec<String> = directories.iter().filter_map(|directory| job_of(directory)).collect();
    jobs.sort();
    Ok(jobs)
}

/// The store of `job` below `dir`, the value of `doris.checkpoint.dir`: a local path, `file://…`, or the URL of an
/// object store (`s3://bucket/prefix`), whose credentials are in the environment (`AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`, …).
///
/// # Errors
/// [`Error::Config`] for a location that cannot be used.
pub fn open(dir: &str, job: &str) -> Result<Arc<dyn CheckpointStore>> {
    let dir = dir.trim();
    let directory = directory_of(job)?;
    if dir.is_empty() {
        return Err(Error::config("doris.checkpoint.dir", "is empty; name a directory or s3://bucket/prefix"));
    }
    if let Some(path) = dir.strip_prefix("file://") {
        return Ok(Arc::new(LocalStore::new(std::path::Path::new(path).join(directory))));
    }
    if dir.contains("://") {
        return Ok(Arc::new(ObjectStoreCheckpoints::from_url(dir, &directory, std::env::vars())?));
    }
    Ok(Arc::new(LocalStore::new(std::path::Path::new(dir).join(directory))))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn job_names_become_distinct_safe_directories() {
        for (job, directory) in [
            ("mirror", "mirror"),
            ("a b/c", "a%20b%2Fc"),
            ("..", "%2E."),
            (".hidden", "%2Ehidden"),
            ("ü", "%C3%BC"),
            ("v1.2_x-y", "v1.2_x-y"),
        ] {
            assert_eq!(directory_of(job).unwrap(), directory);
            assert_eq!(job_of(directory).as_deref(), Some(job));
        }
        for other in ["%", "a b", ".hidden", "%20", "", "a%2520b/"] {
            assert_eq!(job_of(other), None, "{other}");
        }
        assert!(directory_of("  ").unwrap_err().to_string().contains("doris.job.name"));
    }

    #[test]
    fn location_names_the_kind_of_store() {
        assert_eq!(open("/tmp/cp", "j").unwrap().location(), "/tmp/cp/j");
        assert_eq!(open("file:///tmp/cp/", "j").unwrap().location(), "/tmp/cp/j");
        assert_eq!(open("s3://bucket/some/prefix/", "a b").unwrap().location(), "s3://bucket/some/prefix/a%20b");
        for wrong in ["", " ", "gopher://x/y", "s3://"] {
            let error = open(wrong, "j").unwrap_err().to_string();
            assert!(error.contains("doris.checkpoint.dir"), "{wrong}: {error}");
        }
    }
}
