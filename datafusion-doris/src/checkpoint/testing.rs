//! A store in memory that fails where it is told to.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::store::{CheckpointStore, Created};
use crate::error::{Error, Result, Retry};

#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    failures: Mutex<(usize, usize)>,
    hang: Mutex<Option<Hang>>,
    before_list: Mutex<Option<Work>>,
}

/// What somebody else does meanwhile.
struct Work(BoxFuture<'static, ()>);

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

/// A write that is never answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hang {
    /// Writes before it.
    pub after: usize,
    /// It is done nevertheless.
    pub done: bool,
}

impl MemoryStore {
    /// The next `times` writes are done, and answered with an error.
    pub fn lose_answers(&self, times: usize) {
        self.failures.lock().0 = times;
    }

    /// The next `times` writes fail.
    pub fn fail(&self, times: usize) {
        self.failures.lock().1 = times;
    }

    /// From the given write on nothing is answered, until this is called again.
    pub fn hang(&self, hang: Option<Hang>) {
        *self.hang.lock() = hang;
    }

    /// Does `work` first when the objects are listed the next time.
    pub fn before_next_list(&self, work: impl Future<Output = ()> + Send + 'static) {
        *self.before_list.lock() = Some(Work(work.boxed()));
    }

    /// Whether the next write is answered; if not, whether it is done.
    fn hangs(&self) -> Option<bool> {
        let mut hang = self.hang.lock();
        let hang = hang.as_mut()?;
        if hang.after == 0 {
            return Some(std::mem::take(&mut hang.done));
        }
        hang.after -= 1;
        None
    }

    fn failure(name: &str) -> Error {
        let source = Box::new(std::io::Error::other("told to fail"));
        Error::CheckpointStore { operation: "writing", object: name.into(), retry: Retry::SameLabel, source }
    }

    fn write<T>(&self, name: &str, work: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> T) -> Result<T> {
        let mut failures = self.failures.lock();
        if failures.1 > 0 {
            failures.1 -= 1;
            return Err(Self::failure(name));
        }
        let done = work(&mut self.objects.lock());
        if failures.0 > 0 {
            failures.0 -= 1;
            return Err(Self::failure(name));
        }
        Ok(done)
    }
}

#[async_trait]
impl CheckpointStore for MemoryStore {
    async fn list(&self) -> Result<Vec<String>> {
        tokio::task::yield_now().await;
        let work = self.before_list.lock().take();
        if let Some(Work(work)) = work {
            work.await;
        }
        Ok(self.objects.lock().keys().cloned().collect())
    }

    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.objects.lock().get(name).cloned())
    }

    async fn create(&self, name: &str, content: Vec<u8>) -> Result<Created> {
        let hangs = self.hangs();
        if hangs == Some(false) {
            std::future::pending::<()>().await;
        }
        let created = self.write(name, |objects| {
            if objects.contains_key(name) {
                return Created::Exists;
            }
            objects.insert(name.to_string(), content);
            Created::Created
        });
        if hangs.is_some() {
            std::future::pending::<()>().await;
        }
        created
    }

    async fn put(&self, name: &str, content: Vec<u8>) -> Result<()> {
        if self.hangs().is_some() {
            std::future::pending::<()>().await;
        }
        self.write(name, |objects| drop(objects.insert(name.to_string(), content)))
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.objects.lock().remove(name);
        Ok(())
    }

    fn location(&self) -> String {
        "memory".into()
    }
}
