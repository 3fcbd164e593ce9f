//! A future or stream that is polled, and dropped, on a deep stack of its own.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;

/// Bytes of the stack. Threads of the runtime have 2 MiB, which some dozen nested expressions use up; the deepest
/// expression that is allowed has 3000 levels. Pages count only once they are touched.
const STACK_BYTES: usize = 1 << 30;

/// Wraps what recurses. `None` only while it is dropped.
pub(crate) struct DeepStack<T>(Option<Pin<Box<T>>>);

impl<T> DeepStack<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self(Some(Box::pin(inner)))
    }
}

impl<F: Future> Future for DeepStack<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match &mut self.0 {
            Some(inner) => stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, || inner.as_mut().poll(cx)),
            None => Poll::Pending,
        }
    }
}

impl<S: Stream> Stream for DeepStack<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        match &mut self.0 {
            Some(inner) => stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, || inner.as_mut().poll_next(cx)),
            None => Poll::Ready(None),
        }
    }
}

impl<T> Drop for DeepStack<T> {
    fn drop(&mut self) {
        let inner = self.0.take();
        stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, || drop(inner));
    }
}

/// Runs what recurses and does not wait.
pub(crate) fn on_deep_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, work)
}
