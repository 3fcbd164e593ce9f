//! Checkpoints in a directory of a local (or properly mounted) file system.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::{CheckpointStore, Created};
use crate::error::{Error, Result, Retry};
use crate::failpoints;

/// Ends the names of files that are being written.
const UNFINISHED: &str = ".tmp";

/// A directory.
///
/// A file is written under a temporary name and flushed to the disk (`fsync`), then linked to its name, which fails
/// when there is one already, and the directory is flushed too. The file system must support hard links.
#[derive(Debug, Clone)]
pub struct LocalStore {
    dir: PathBuf,
}

impl LocalStore {
    /// Objects are files of `dir`, which is made with the first one.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The names of the directories in it.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when it is not there; [`Error::CheckpointStore`].
    pub(super) async fn directories(&self) -> Result<Vec<String>> {
        let found = self.blocking("listing", "", |dir, _| {
            let entries = match fs::read_dir(dir) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                entries => entries?,
            };
            let mut names = Vec::new();
            for entry in entries {
                let entry = entry?;
                if entry.path().is_dir()
                    && let Ok(name) = entry.file_name().into_string()
                {
                    names.push(name);
                }
            }
            Ok(Some(names))
        });
        found.await?.ok_or_else(|| Error::Checkpoint { reason: format!("there is no directory {}", self.location()) })
    }

    /// Runs file work where blocking is allowed.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        name: &str,
        work: impl FnOnce(&Path, &str) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (dir, file) = (self.dir.clone(), name.to_string());
        let done = tokio::task::spawn_blocking(move || work(&dir, &file)).await;
        let object = self.dir.join(name).display().to_string();
        match done {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(source)) => {
                let retry = match source.kind() {
                    ErrorKind::PermissionDenied
                    | ErrorKind::ReadOnlyFilesystem
                    | ErrorKind::NotADirectory
                    | ErrorKind::IsADirectory
                    | ErrorKind::Unsupported
                    | ErrorKind::InvalidInput => Retry::Never,
                    _ => Retry::SameLabel,
                };
                Err(Error::CheckpointStore { operation, object, retry, source: Box::new(source) })
            }
            Err(source) => {
                Err(Error::CheckpointStore { operation, object, retry: Retry::SameLabel, source: Box::new(source) })
            }
        }
    }
}

/// A file with `content`, flushed, under a name that nobody else uses.
fn write_temporary(dir: &Path, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    make_durable(dir)?;
    // Processes on several machines may have the same number: each state has its own random keys.
    let (process, random) = (std::process::id(), RandomState::new().build_hasher().finish());
    let path = dir.join(format!("{name}.{process}-{random:016x}{UNFINISHED}"));
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    match written {
        Ok(()) => Ok(path),
        Err(error) => {
            let _ = fs::remove_file(&path);
            Err(error)
        }
    }
}

/// Makes `dir` and its missing parents, and flushes each new name in its parent.
fn make_durable(dir: &Path) -> io::Result<()> {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().unwrap_or(Path::new(""));
    make_durable(parent)?;
    match fs::create_dir(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    flush_directory(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

#[cfg(unix)]
fn flush_directory(dir: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).open(dir)?.sync_all()
}

/// Elsewhere a directory cannot be opened, and its names are durable with the files.
#[cfg(not(unix))]
fn flush_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

#[async_trait]
impl CheckpointStore for LocalStore {
    async fn list(&self) -> Result<Vec<String>> {
        self.blocking("listing", "", |dir, _| {
            let entries = match fs::read_dir(dir) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
                entries => entries?,
            };
            let mut names = Vec::new();
            for entry in entries {
                if let Ok(name) = entry?.file_name().into_string()
                    && !name.ends_with(UNFINISHED)
                {
                    names.push(name);
                }
            }
            Ok(names)
        })
        .await
    }

    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.blocking("reading", name, |dir, name| match fs::read(dir.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            content => content.map(Some),
        })
        .await
    }

    async fn create(&self, name: &str, content: Vec<u8>) -> Result<Created> {
        self.blocking("creating", name, move |dir, name| {
            let temporary = write_temporary(dir, name, &content)?;
            let linked =
                failpoints::file(failpoints::STORE_UNLINKED).and_then(|()| fs::hard_link(&temporary, dir.join(name)));
            let _ = fs::remove_file(&temporary);
            let created = match linked {
                Ok(()) => Created::Created,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Created::Exists,
                Err(error) => return Err(error),
            };
            failpoints::file(failpoints::STORE_LINKED)?;
            // Also what another process linked must be durable before it is relied on.
            flush_directory(dir)?;
            Ok(created)
        })
        .await
    }

    async fn put(&self, name: &str, content: Vec<u8>) -> Result<()> {
        self.blocking("writing", name, move |dir, name| {
            let temporary = write_temporary(dir, name, &content)?;
            fs::rename(&temporary, dir.join(name)).inspect_err(|_| {
                let _ = fs::remove_file(&temporary);
            })?;
            flush_directory(dir)
        })
        .await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.blocking("removing", name, |dir, name| match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        })
        .await
    }

    async fn sweep(&self) -> Result<()> {
        self.blocking("clearing up", "", |dir, _| {
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().ends_with(UNFINISHED) {
                    match fs::remove_file(entry.path()) {
                        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                }
            }
            Ok(())
        })
        .await
    }

    fn location(&self) -> String {
        self.dir.display().to_string()
    }
}
