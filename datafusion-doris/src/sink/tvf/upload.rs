//! One object on its way into the store.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use datafusion::common::runtime::JoinSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{Error as StoreError, MultipartUpload, ObjectStore, ObjectStoreExt};

use crate::client::DorisClient;

/// Bytes of one part, all but the last: stores want at least 5 MB, some of them parts of one size.
const PART_BYTES: usize = 8 << 20;

/// An object that grows: one request if it is small, else parts of one size, some of them on their way at once.
///
/// # Cancellation
/// Dropping it aborts the upload in the background: nothing of it stays in the store.
pub(super) struct Upload {
    client: DorisClient,
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// Parts on their way at most.
    at_once: usize,
    buffer: BytesMut,
    bytes: u64,
    parts: JoinSet<Result<(), StoreError>>,
    multipart: Option<Box<dyn MultipartUpload>>,
}

impl Upload {
    pub(super) fn new(client: DorisClient, store: Arc<dyn ObjectStore>, path: Path, at_once: usize) -> Self {
        let (buffer, parts) = (BytesMut::new(), JoinSet::new());
        Self { client, store, path, at_once, buffer, bytes: 0, parts, multipart: None }
    }

    /// Bytes taken so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes further bytes, and waits while too many are on their way.
    pub(super) async fn push(&mut self, chunk: Bytes) -> Result<(), StoreError> {
        self.bytes += chunk.len() as u64;
        self.buffer.extend_from_slice(&chunk);
        // The last part must not be empty.
        while self.buffer.len() > PART_BYTES {
            let part = self.buffer.split_to(PART_BYTES).freeze();
            self.begin().await?;
            self.send(part).await?;
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), StoreError> {
        if self.multipart.is_none() {
            let (store, path) = (Arc::clone(&self.store), self.path.clone());
            let begun = Unbroken::new(&self.client, async move { store.put_multipart(&path).await }.boxed(), |begun| {
                async move {
                    if let Ok(mut upload) = begun {
                        abort(&mut *upload).await;
                    }
                }
                .boxed()
            });
            self.multipart = Some(begun.await?);
        }
        Ok(())
    }

    async fn send(&mut self, part: Bytes) -> Result<(), StoreError> {
        while self.parts.len() >= self.at_once {
            self.part_done().await?;
        }
        if let Some(upload) = &mut self.multipart {
            self.parts.spawn(upload.put_part(part.into()));
        }
        Ok(())
    }

    async fn part_done(&mut self) -> Result<(), StoreError> {
        match self.parts.join_next().await {
            None => Ok(()),
            Some(Ok(done)) => done,
            Some(Err(error)) => Err(StoreError::JoinError { source: error }),
        }
    }

    /// Ends the object; gives its size.
    pub(super) async fn finish(mut self) -> Result<u64, StoreError> {
        let rest = self.buffer.split().freeze();
        if self.multipart.is_none() {
            let (store, path) = (Arc::clone(&self.store), self.path.clone());
            let put = async move { store.put(&path, rest.into()).await.map(drop) }.boxed();
            // Whoever drops this removes the objects of the label after it.
            Unbroken::new(&self.client, put, |_| async {}.boxed()).await?;
            return Ok(self.bytes);
        }
        self.send(rest).await?;
        while !self.parts.is_empty() {
            self.part_done().await?;
        }
        if let Some(mut upload) = self.multipart.take() {
            let complete = async move {
                let done = upload.complete().await.map(drop);
                if done.is_err() {
                    abort(&mut *upload).await;
                }
                done
            };
            Unbroken::new(&self.client, complete.boxed(), |_| async {}.boxed()).await?;
        }
        Ok(self.bytes)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut upload) = self.multipart.take() else { return };
        let mut parts = std::mem::take(&mut self.parts);
        self.client.cleanup().later("abort an upload", async move {
            // A part that arrives after the abort would stay.
            parts.shutdown().await;
            abort(&mut *upload).await;
        });
    }
}

async fn abort(upload: &mut dyn MultipartUpload) {
    if let Err(error) = upload.abort().await {
        // Its text may repeat the request; the kind of failure is enough for a life-cycle rule to be thought of.
        tracing::warn!(kind = %kind(&error), "an upload in parts was not aborted");
    }
}

fn kind(error: &StoreError) -> &'static str {
    match error {
        StoreError::NotFound { .. } => "not found",
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => "access refused",
        _ => "failed",
    }
}

type Undo<T> = fn(T) -> BoxFuture<'static, ()>;

/// A request that is brought to its end, and then undone, when nobody waits for it any more: half of it may have had its
/// effect already, and its answer is needed to take that back.
struct Unbroken<T: Send + 'static> {
    client: DorisClient,
    work: Option<BoxFuture<'static, T>>,
    undo: Undo<T>,
}

impl<T: Send + 'static> Unbroken<T> {
    fn new(client: &DorisClient, work: BoxFuture<'static, T>, undo: Undo<T>) -> Self {
        Self { client: client.clone(), work: Some(work), undo }
    }
}

impl<T: Send + 'static> Future for Unbroken<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let done = work.poll_unpin(context);
        if done.is_ready() {
            self.work = None;
        }
        done
    }
}

impl<T: Send + 'static> Drop for Unbroken<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let undo = self.undo;
            self.client.cleanup().later("end a request", async move { undo(work.await).await });
        }
    }
}
