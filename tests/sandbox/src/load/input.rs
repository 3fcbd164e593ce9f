//! The body of a request as a blocking reader.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

enum Piece {
    Data(Bytes),
    End,
}

/// Async end of the channel.
pub(super) struct BodySender(mpsc::Sender<Piece>);

/// Blocking end of the channel. A channel that closes without an announced end reads as an error.
pub(super) struct BodyReader {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    ended: bool,
}

/// A channel that holds so many pieces.
pub(super) fn channel(pieces: usize) -> (BodySender, BodyReader) {
    let (sender, receiver) = mpsc::channel(pieces);
    (BodySender(sender), BodyReader { pieces: receiver, current: Bytes::new(), ended: false })
}

impl BodySender {
    /// Waits for room; false when the reader is gone.
    pub async fn data(&self, bytes: Bytes) -> bool {
        self.0.send(Piece::Data(bytes)).await.is_ok()
    }

    /// Announces the end of the body.
    pub async fn end(self) {
        // A reader that is gone does not need to know.
        let _ = self.0.send(Piece::End).await;
    }
}

impl BodyReader {
    /// Waits until a byte or the end is there; false at the end.
    pub fn wait(&mut self) -> io::Result<bool> {
        while self.current.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Data(bytes)) => self.current = bytes,
                Some(Piece::End) => self.ended = true,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        "the client closed the connection before the end of the body",
                    ));
                }
            }
        }
        Ok(!self.current.is_empty())
    }
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.wait()? {
            return Ok(0);
        }
        let n = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..n]);
        Ok(n)
    }
}
