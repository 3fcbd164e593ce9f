//! Standard output and standard error, written by a thread of their own.
//!
//! A terminal or pipe that nobody reads blocks its writer. Here it blocks only this thread: the channel to it is
//! bounded, so the query slows down with it, and Ctrl-C still works. Both streams share the channel, so their order is
//! kept. Every chunk is flushed: rows show up as they come.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot, watch};

use crate::error::{Result, ShellError};

/// Chunks that may wait for a slow reader.
const WAITING_CHUNKS: usize = 8;

enum Chunk {
    Out(Vec<u8>),
    Err(Vec<u8>),
    /// Answered when everything before it is written.
    Flushed(oneshot::Sender<()>),
}

/// The shell's two output streams. Clones write to the same place.
#[derive(Clone)]
pub struct Output {
    chunks: mpsc::Sender<Chunk>,
}

impl Output {
    /// The streams of this process, and the thread that writes them; it ends when the last clone is dropped.
    pub fn stdio() -> (Self, JoinHandle<()>) {
        Self::to_writers(io::stdout(), io::stderr())
    }

    /// Streams that are kept in memory.
    pub fn captured() -> (Self, Captured) {
        let captured = Captured::default();
        let (output, _) = Self::to_writers(captured.out.clone(), captured.err.clone());
        (output, captured)
    }

    fn to_writers(out: impl Write + Send + 'static, err: impl Write + Send + 'static) -> (Self, JoinHandle<()>) {
        let (chunks, receiver) = mpsc::channel(WAITING_CHUNKS);
        let thread = std::thread::spawn(move || write_chunks(receiver, out, err));
        (Self { chunks }, thread)
    }

    /// Writes result data to standard output.
    ///
    /// # Errors
    /// [`ShellError::OutputClosed`] when the reader is gone.
    pub async fn data(&self, bytes: Vec<u8>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.chunks.send(Chunk::Out(bytes)).await.map_err(|_| ShellError::OutputClosed)
    }

    /// Writes a line for people to standard error.
    ///
    /// # Errors
    /// [`ShellError::OutputClosed`] when the reader of standard output is gone.
    pub async fn note(&self, line: &str) -> Result<()> {
        let line = format!("{line}\n").into_bytes();
        self.chunks.send(Chunk::Err(line)).await.map_err(|_| ShellError::OutputClosed)
    }

    /// Waits until everything so far is written.
    ///
    /// # Errors
    /// [`ShellError::OutputClosed`] when the reader is gone.
    pub async fn flush(&self) -> Result<()> {
        let (done, flushed) = oneshot::channel();
        self.chunks.send(Chunk::Flushed(done)).await.map_err(|_| ShellError::OutputClosed)?;
        flushed.await.map_err(|_| ShellError::OutputClosed)
    }
}

fn write_chunks(mut chunks: mpsc::Receiver<Chunk>, mut out: impl Write, mut err: impl Write) {
    while let Some(chunk) = chunks.blocking_recv() {
        match chunk {
            Chunk::Out(bytes) => {
                // Ending here closes the channel, which is how the shell learns of it.
                if out.write_all(&bytes).and_then(|()| out.flush()).is_err() {
                    return;
                }
            }
            // Without standard error there is nobody to tell; the data still matters.
            Chunk::Err(bytes) => drop(err.write_all(&bytes).and_then(|()| err.flush())),
            Chunk::Flushed(done) => drop(done.send(())),
        }
    }
}

/// What was written to an [`Output::captured`]. Call [`Output::flush`] before looking.
#[derive(Debug, Clone, Default)]
pub struct Captured {
    out: Buffer,
    err: Buffer,
}

impl Captured {
    /// Standard output so far.
    pub fn out(&self) -> String {
        self.out.text()
    }

    /// Standard error so far.
    pub fn err(&self) -> String {
        self.err.text()
    }

    /// Waits until standard output holds `text`. Never ends if that does not happen.
    pub async fn out_holds(&self, text: &str) {
        self.out.holds(text).await;
    }

    /// Waits until standard error holds `text`. Never ends if that does not happen.
    pub async fn err_holds(&self, text: &str) {
        self.err.holds(text).await;
    }
}

#[derive(Debug, Clone, Default)]
struct Buffer(Arc<watch::Sender<Vec<u8>>>);

impl Buffer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.borrow()).into_owned()
    }

    async fn holds(&self, text: &str) {
        let found = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains(text);
        // The sender lives in `self`: waiting cannot fail.
        let _ = self.0.subscribe().wait_for(found).await;
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send_modify(|written| written.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_closed_reader_is_reported_to_the_shell() {
        let (output, thread) = Output::to_writers(Closed, io::sink());
        let _ = output.data(b"x".to_vec()).await;
        thread.join().unwrap();
        assert!(matches!(output.data(b"y".to_vec()).await, Err(ShellError::OutputClosed)));
    }

    #[tokio::test]
    async fn notes_survive_a_closed_standard_error() {
        let captured = Captured::default();
        let (output, _) = Output::to_writers(captured.out.clone(), Closed);
        output.note("lost").await.unwrap();
        output.data(b"kept".to_vec()).await.unwrap();
        output.flush().await.unwrap();
        assert_eq!(captured.out(), "kept");
    }
}
